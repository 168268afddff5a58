"""Connections of clients on plain sockets: they send what a scenario wants, and see the throttle of each answer."""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from typing import NamedTuple

from tests.closed_loop_pairs.produces import record_batch, wire_text

_PRODUCE, _FETCH, _HANDSHAKE, _AUTHENTICATE = 0, 1, 17, 36
_TIMEOUT_S = 60.0
_WAIT_MS = 300
"""Time that a broker waits for records to fetch, ms."""
_ROUND_BYTES = 8
_BATCH_HEAD = struct.Struct(">qi")
_RECORDS_AT = 23
"""Place of lastOffsetDelta in a record batch."""


@lru_cache(maxsize=4_096)
def _batch(value_bytes: int) -> bytes:
    return record_batch(b"x" * value_bytes)


class RefusedError(OSError):
    """A broker answered with an error."""


class Fetched(NamedTuple):
    """The answer to a fetch of one partition."""

    throttle_ms: int
    next_offset: int
    high_watermark: int
    """-1 in the empty answer to a throttled fetch."""


class Connection:
    """One connection of a user, logged in by SASL/PLAIN.

    Args:
        port: of the broker at 127.0.0.1.
        user: user to log in as.
        password: its password.
        client_id: client id of the requests.
    """

    def __init__(self, port: int, user: str, password: str, client_id: str) -> None:
        self._sent, self._client_id = 0, wire_text(client_id)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(_HANDSHAKE, 1, wire_text("PLAIN"))
        login = f"\0{user}\0{password}".encode()
        self.ask(_AUTHENTICATE, 0, struct.pack(">i", len(login)) + login)

    def produce(self, topic: str, partition: int, value_bytes: int) -> int:
        """Send one record and wait for the answer; its throttle, ms.

        Raises:
            RefusedError: the broker did not write it.
        """
        batch = _batch(max(value_bytes // _ROUND_BYTES, 1) * _ROUND_BYTES)
        body = struct.pack(">hhii", -1, 1, 30_000, 1) + wire_text(topic)
        answer = self.ask(_PRODUCE, 8, body + struct.pack(">iii", 1, partition, len(batch)) + batch)
        [error] = struct.unpack_from(">h", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
        if error:
            raise RefusedError(f"produce to {topic}: error {error}")
        found: int = struct.unpack(">i", answer[-4:])[0]
        return found

    def fetch(self, topic: str, partition: int, offset: int, most_bytes: int) -> Fetched:
        """Fetch records of one partition, as a client without fetch sessions."""
        body = struct.pack(">iiiibi", -1, _WAIT_MS, 1, most_bytes, 0, 1) + wire_text(topic)
        answer = self.ask(_FETCH, 4, body + struct.pack(">iiqi", 1, partition, offset, most_bytes))
        throttle_ms, topics = struct.unpack_from(">ii", answer, 0)
        if not topics:
            return Fetched(throttle_ms, offset, -1)
        at = 8 + 2 + len(topic.encode()) + 4
        _, error, high_watermark, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        if error:
            raise RefusedError(f"fetch of {topic}: error {error}")
        at += 26 + 16 * max(aborted, 0)
        [size] = struct.unpack_from(">i", answer, at)
        records = answer[at + 4 : at + 4 + max(size, 0)]
        return Fetched(throttle_ms, _next_offset(records, offset), high_watermark)

    def close(self) -> None:
        """Leave the connection."""
        self._socket.close()

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send a request and wait for its answer; the body of that, after its correlation id."""
        self._send(api_key, version, body)
        return self._receive()

    def ask_together(self, api_key: int, version: int, body: bytes, count: int) -> None:
        """Send the same request several times at once, and wait for all answers."""
        packed = self._packed(api_key, version, body)
        self._socket.sendall(packed * count)
        for _ in range(count):
            self._receive()

    def _send(self, api_key: int, version: int, body: bytes) -> None:
        self._socket.sendall(self._packed(api_key, version, body))

    def _packed(self, api_key: int, version: int, body: bytes) -> bytes:
        self._sent += 1
        whole = struct.pack(">hhi", api_key, version, self._sent) + self._client_id + body
        return struct.pack(">i", len(whole)) + whole

    def _receive(self) -> bytes:
        """The body of the next answer, after its correlation id."""
        [size] = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionError("the broker closed the connection")
            found += part
        return bytes(found)


def _next_offset(records: bytes, offset: int) -> int:
    """The offset after the last whole batch; the last one may be cut."""
    at = 0
    while at + _RECORDS_AT + 4 <= len(records):
        base, length = _BATCH_HEAD.unpack_from(records, at)
        if at + 12 + length > len(records):
            break
        [delta] = struct.unpack_from(">i", records, at + _RECORDS_AT)
        offset = max(offset, base + delta + 1)
        at += 12 + length
    return offset
