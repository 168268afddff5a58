"""The data directory of a KRaft node, which Kafka does not make by itself."""

from __future__ import annotations

from kquota_spark.embedded.servers import Server
from kquota_spark.errors import UserError
from kquota_spark.process.processes import is_running, kill, spawn, wait_for

_WITHIN_S = 180.0


def format_data(server: Server, group: int | None) -> None:
    """Format the data directory of a KRaft node that never ran; nothing to do for any other server.

    Args:
        server: the node.
        group: the process group of a watchdog, as of the server itself.

    Raises:
        UserError: it was not formatted, with the log that says why.
    """
    if not server.format_command or server.is_formatted:
        return
    process = spawn(server.format_command, directory=server.directory, log=server.log, group=group)
    if not wait_for(lambda: not is_running(process), within_s=_WITHIN_S):
        kill([process])
    if not server.is_formatted:
        msg = f"{server.name}: its data directory was not formatted: {server.log} says why"
        raise UserError(msg)
