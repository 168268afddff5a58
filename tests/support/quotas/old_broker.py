"""A broker of the wire protocol that answers ApiVersions and Metadata as one before 2.6 does: it has no quota calls."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_API_VERSIONS, _METADATA = 18, 3
_UNSUPPORTED_VERSION = 35


class _Broker(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while head := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", head))
            key, version, correlation_id = struct.unpack(">hhi", request[:8])
            body = self._api_versions(version) if key == _API_VERSIONS else self._metadata()
            answer = struct.pack(">i", correlation_id) + body
            self.wfile.write(struct.pack(">i", len(answer)) + answer)

    def _api_versions(self, version: int) -> bytes:
        """Version 0, whatever was asked for: brokers say so, and the client asks again."""
        error = _UNSUPPORTED_VERSION if version else 0
        ranges = [(_METADATA, 1, 1), (_API_VERSIONS, 0, 0)]
        return struct.pack(">hi", error, len(ranges)) + b"".join(
            struct.pack(">hhh", *each) for each in ranges
        )

    def _metadata(self) -> bytes:
        """Version 1: this broker, which is the controller, and no topics."""
        host, port = b"127.0.0.1", self.connection.getsockname()[1]
        broker = struct.pack(">ih", 1, len(host)) + host + struct.pack(">ih", port, -1)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 1, 0)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def old_broker() -> Iterator[str]:
    """Its address."""
    with _Server(("127.0.0.1", 0), _Broker) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
