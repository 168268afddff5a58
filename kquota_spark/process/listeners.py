"""Check whether a server listens at an address, before a library waits for it without a message."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time

from kquota_spark.errors import UnreachableError, UserError

_WITHIN_S = 1.5
_MOST_PORT = 65_535
_ADDRESS = re.compile(r"(?:[A-Z_]+://)?(?:\[([^\]]+)\]|([^:/\[\]]+)):([0-9]{1,5})")
_HOST = re.compile(r"\[[^\]]+\]|[^:/\[\]]+")
_CHROOT = re.compile(r"(?<![:/])/.*")


def require_ports(servers: str, named: str) -> None:
    """Check that each Kafka server has a port, before a library waits for a server that it cannot find.

    Args:
        servers: `host:port,host:port`.
        named: the setting or option that holds the address, for the error.

    Raises:
        UserError: a server has no port or an impossible one, or an address is not `host:port`.
    """
    for server in map(str.strip, servers.split(",")):
        if _HOST.fullmatch(server):
            raise UserError(f"{named}: {server}: no port, e.g. {server}:9092")
        found = _ADDRESS.fullmatch(server)
        if found is None:
            raise UserError(f"{named}: {servers!r}, expected host:port,host:port")
        if not 1 <= int(found[3]) <= _MOST_PORT:
            raise UserError(f"{named}: {server}: no port has this number, expected 1 to {_MOST_PORT}")


def require_listener(what: str, servers: str, named: str) -> None:
    """Check that at least one of several servers accepts a connection; all are tried at once.

    Long-running programs wait longer than this, because a server may be about to start. If an address has another
    form than `host:port`, nothing is checked: the library that understands it does that.

    Args:
        what: the kind of server, for the error.
        servers: `host:port,host:port`, with or without a chroot at the end.
        named: the setting or option that holds the address, for the error.

    Raises:
        UnreachableError: none accepts one: refused, unknown host, or silent for 1.5 s.
    """
    found = [_ADDRESS.fullmatch(server.strip()) for server in _CHROOT.sub("", servers).split(",")]
    addresses = [(each[1] or each[2], int(each[3])) for each in found if each is not None]
    if len(addresses) < len(found):
        return
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    for address in addresses:
        # A daemon, because nothing can end a query to a name server that does not answer.
        threading.Thread(target=_try, args=(address, answers), daemon=True).start()
    until_s = time.monotonic() + _WITHIN_S
    problems: list[str] = []
    while len(problems) < len(addresses):
        try:
            problem = answers.get(timeout=max(until_s - time.monotonic(), 0.0))
        except queue.Empty:
            problems.append(f"silent for {_WITHIN_S:g} s")
            break
        if not problem:
            return
        problems.append(problem)
    why = ", ".join(dict.fromkeys(problems))
    raise UnreachableError(f"{what} {servers} did not answer ({why}): check {named} and that the server runs")


def _try(address: tuple[str, int], answers: queue.SimpleQueue[str]) -> None:
    """Put an empty text if a connection can be made, else the reason; put nothing while the server is silent."""
    try:
        socket.create_connection(address).close()
        answers.put("")
    except ConnectionRefusedError:
        answers.put("connection refused")
    except socket.gaierror:
        answers.put("no such host")
    except (OSError, OverflowError, UnicodeError) as error:
        answers.put(getattr(error, "strerror", None) or str(error))
