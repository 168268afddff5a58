"""`kquota serve`: the report, the live view and plans in a browser, read only; each user sees only their own data."""

from __future__ import annotations

import argparse
import signal

from kquota_spark.cli.options import SettingsPlace, add_settings_options, settings_of
from kquota_spark.cli.read.exporter import port_argument
from kquota_spark.errors import UserError
from kquota_spark.process.extras import install_text
from kquota_spark.process.notices import notices_of

COMMANDS = {
    "serve": (
        "programs",
        "the report, the live view, tenants' own pages and waiting plans in a browser, read only",
        "kquota serve --port 8080",
    ),
}

_PORT = 9193
_THREADS = 4
_MOST_CONNECTIONS = 200
_MOST_HEADER_BYTES, _MOST_BODY_BYTES = 16_384, 4_096
_SILENT_S = 30

_notice = notices_of("serve")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve`."""
    parser = subparsers.add_parser(
        "serve",
        description="Shows the report, the live view, each tenant's own page and the plans that wait, until stopped. "
        "It only reads. The section serve of the settings has who may look: by a token, or by the user that a reverse "
        "proxy names.",
    )
    add_settings_options(parser)
    parser.add_argument(
        "--port", type=port_argument, default=_PORT, metavar="N", help=f"to listen on (default {_PORT})"
    )
    parser.add_argument(
        "--address", default="127.0.0.1", metavar="IP",
        help="to listen on; another than loopback needs serve.token or serve.user_header (default 127.0.0.1)",
    )  # fmt: skip
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Answer requests until stopped.

    Raises:
        UserError: the address cannot be listened on, the settings leave it open, or a package is missing.
    """
    from kquota_spark.cli.serve.access import Access

    settings = settings_of(options, "serve")
    access = Access(settings.serve, options.address)
    try:
        from waitress.server import create_server

        from kquota_spark.cli.serve.app import app_of
        from kquota_spark.cli.serve.contents import Contents
    except ModuleNotFoundError as error:
        raise UserError(f"serve needs the package {error.name}: {install_text('serve')}") from error
    contents = Contents(settings, SettingsPlace(options.config, options.tables))
    try:
        server = create_server(
            app_of(contents, access), host=options.address, port=options.port, threads=_THREADS,
            connection_limit=_MOST_CONNECTIONS, channel_timeout=_SILENT_S, ident=None,
            max_request_header_size=_MOST_HEADER_BYTES, max_request_body_size=_MOST_BODY_BYTES,
        )  # fmt: skip
    except OSError as error:
        reason = f"{options.address}:{options.port} cannot be listened on ({error.strerror or error})"
        raise UserError(f"--port: {reason}: give --port another port") from error
    # Another thread must not close the server: its loop would fail on closed sockets. So end it in this thread.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    if access.is_open:
        _notice("no serve.token and no serve.user_header: every user of this machine can read everything")
    _notice(f"answering http://{options.address}:{server.effective_port}/; stop with Ctrl-C")
    server.run()
    server.close()
    contents.close()
    return 0


def _end(*_: object) -> None:
    raise SystemExit
