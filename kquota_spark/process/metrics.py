"""An endpoint for Prometheus: the text format, and a small HTTP server that cannot hold up the job.

The format is Prometheus' text exposition 0.0.4. A scrape returns the figures that the job last reported about itself
and makes no call to Spark. At most `_AT_ONCE` scrapes are served at a time, each for at most `_REQUEST_DEADLINE_S`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal

from kquota_spark.errors import UserError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_AT_ONCE = 16
_CLIENT_TIMEOUT_S = 2.0
"""Longest wait for a client's next byte."""
_REQUEST_DEADLINE_S = 5.0
"""Longest time for a whole request. Otherwise a client that sends a byte now and then would stay for ever."""
_POLL_S = 0.2
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, kind, meaning, and values by labels."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    samples: Sequence[tuple[Mapping[str, str], float]]


# Not prometheus_client: it writes 1795319541 as 1.795319541e+09 and sorts labels by name, and people read the output
# of `exporter --once`.
def exposition(families: Sequence[Family]) -> str:
    """The text of a scrape; a metric without a value is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


@contextlib.contextmanager
def metrics_endpoint(
    address: str, port: int, scrape: Callable[[], str], setting: str = "metrics.port"
) -> Iterator[int]:
    """Answer `GET /metrics` with what `scrape` returns, from threads of its own.

    Args:
        address: the address to listen on, e.g. `127.0.0.1`, or `0.0.0.0` for all.
        port: the port to listen on.
        scrape: makes the text. It is called once per request, and must be quick and safe to call from any thread.
        setting: the setting that holds the port, for the error.

    Yields:
        The port.

    Raises:
        UserError: the server cannot listen on this address and port.
    """
    try:
        server = _Server((address, port), scrape)
    except OSError as error:
        raise UserError(
            f"{setting}: {address}:{port} cannot be listened on ({error.strerror or error}): "
            f"give {setting} another port"
        ) from error
    threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.is_ending = True
        server.shutdown()
        server.server_close()


# The server of prometheus_client has no such limits: with it, 250 silent clients used up all file descriptors of the
# job.
class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    block_on_close = False  # a slow client does not delay the end of the job

    def __init__(self, address: tuple[str, int], scrape: Callable[[], str]) -> None:
        self.scrape = scrape
        self.is_ending = False
        self._free = threading.Semaphore(_AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Connections beyond the limit wait in the listen queue; when that is full, the system refuses them.
        while not self._free.acquire(timeout=_POLL_S):
            if self.is_ending:
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(_REQUEST_DEADLINE_S, _cut, (request,))
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnected."""


def _cut(request: socket.socket) -> None:
    """End the connection; the thread that reads from it or writes to it notices at once."""
    with contextlib.suppress(OSError):  # it has ended by itself
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout: ClassVar[float] = _CLIENT_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        body = self.server.scrape().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name in http.server
        """Do not log scrapes."""

    def version_string(self) -> str:
        """The server name, without the version of Python."""
        return "kquota"
