"""Real receivers of notifications on loopback: HTTP and SMTP, which keep what they got."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What came, and how the next requests are answered: 200 where nothing is given."""

    port: int = 0
    posts: list[Post] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    """The first word of each command of SMTP."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def http_receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            received.posts.append(Post(self.path, dict(self.headers.items()), data))
            status, headers = received.answers.pop(0) if received.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            received.posts.append(Post(self.path, dict(self.headers.items()), b""))
            self.send_error(405)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name in http.server
            """Nobody reads it."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler), received):
        yield received


@contextmanager
def smtp_receiver() -> Iterator[Receiver]:
    """As much of SMTP as smtplib asks for: EHLO, MAIL, RCPT, DATA, QUIT."""
    received = Receiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while (line := self.rfile.readline()) and not line.upper().startswith(b"QUIT"):
                self.wfile.write(self._answer(line.upper()))
            self.wfile.write(b"221 bye\r\n")

        def _answer(self, line: bytes) -> bytes:
            received.lines.append(line.split()[0])
            if line.startswith(b"EHLO"):
                return b"250 here\r\n"
            if line.startswith((b"MAIL", b"RCPT")):
                return b"250 yes\r\n"
            if not line.startswith(b"DATA"):
                return b"500 what\r\n"
            self.wfile.write(b"354 go\r\n")
            lines = []
            while (of_mail := self.rfile.readline()) != b".\r\n":
                lines.append(of_mail.removeprefix(b"."))
            received.mails.append(b"".join(lines))
            return b"250 taken\r\n"

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with _serving(Server(("127.0.0.1", 0), Handler), received):
        yield received


@contextmanager
def _serving(server: Any, received: Receiver) -> Iterator[None]:
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
