"""A network between clients and one server that can be cut: connections end, and new ones are refused at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

_HOST = "127.0.0.1"


class Proxy:
    """Passes bytes on, from its own port to that of a server which may start later.

    Args:
        port: where it listens.
        server_port: where the server listens; None while nobody knows.
    """

    def __init__(self, port: int, server_port: Callable[[], int | None]) -> None:
        self.port = port
        self._server_port, self._is_cut = server_port, False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((_HOST, port), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def mend(self) -> None:
        """Pass on, from now on."""
        self._is_cut = False

    def cut(self) -> None:
        """End all connections; new ones are ended too, until `mend`."""
        self._is_cut = True
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            to_port = self._server_port()
            try:
                if self._is_cut or to_port is None:
                    raise ConnectionRefusedError
                server = socket.create_connection((_HOST, to_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)
        # Both directions end together; each closes the socket that it has read.
        one.close()


@contextlib.contextmanager
def proxy(port: int, server_port: Callable[[], int | None]) -> Iterator[Proxy]:
    """One for as long as the block runs."""
    found = Proxy(port, server_port)
    try:
        yield found
    finally:
        found.close()
