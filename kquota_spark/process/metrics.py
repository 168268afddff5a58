"""An endpoint for Prometheus: the text format, and a small HTTP server that cannot hold up the job.

The format is that of Prometheus' text exposition 0.0.4. A scrape reads what the job has last said about itself: it asks
nothing of Spark, and at most `_AT_ONCE` of them are served at a time, each for at most `_REQUEST_DEADLINE_S`.
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
"""Longest time for a whole request: a client that sends a byte now and then would otherwise stay for ever."""
_POLL_S = 0.2
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, what it means, and its values by labels."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    samples: Sequence[tuple[Mapping[str, str], float]]


# prometheus_client writes 1795319541 as 1.795319541e+09 and sorts labels by name: people read `exporter --once`.
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
        address: to listen on, e.g. `127.0.0.1`, or `0.0.0.0` for all.
        port: to listen on.
        scrape: makes the text; called once per request, must be quick and safe to call from any thread.
        setting: where the port comes from, for the message.

    Yields:
        The port.

    Raises:
        UserError: the address cannot be listened on.
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


# The server of prometheus_client sets no bound: 250 silent clients held every file descriptor of the job.
class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    block_on_close = False  # a slow client does not hold up the end of the job

    def __init__(self, address: tuple[str, int], scrape: Callable[[], str]) -> None:
        self.scrape = scrape
        self.is_ending = False
        self._free = threading.Semaphore(_AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Those beyond wait in the listen queue, the next ones are refused by the system.
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
        """A client that went away is nobody's concern."""


def _cut(request: socket.socket) -> None:
    """End the connection; the thread that reads from it or writes to it sees its end at once."""
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
        """Scrapes are no news."""

    def version_string(self) -> str:
        """Which Python this is need not be told."""
        return "kquota"
