"""Produce requests on a plain socket, so that a client can do what no library does: ignore a throttle, or reconnect."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

_PRODUCE, _VERSION = 0, 8
_POLYNOMIAL = 0x82F63B78
_BATCH_HEAD = struct.Struct(">qiib")
_BATCH_REST = struct.Struct(">hiqqqhii")
_TIMEOUT_MS = 30_000


@lru_cache(maxsize=1)
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _crc32c(data: bytes) -> int:
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _varint(value: int) -> bytes:
    zigzag, found = value << 1, bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def record_batch(value: bytes) -> bytes:
    """A record batch (magic 2) with one record without a key."""
    return packed_batch([value])


def packed_batch(
    values: Sequence[bytes], compression: int = 0, pack: Callable[[bytes], bytes] = lambda data: data
) -> bytes:
    """A record batch (magic 2) with a record without a key per value.

    Args:
        values: of the records.
        compression: number of the compression, 0 for none.
        pack: compresses.
    """
    records = bytearray()
    for place, value in enumerate(values):
        body = b"\x00" + _varint(0) + _varint(place) + b"\x01" + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    last, count = len(values) - 1, len(values)
    rest = _BATCH_REST.pack(compression, last, 0, 0, -1, -1, -1, count) + pack(bytes(records))
    return _BATCH_HEAD.pack(0, len(rest) + 9, -1, 2) + struct.pack(">I", _crc32c(rest)) + rest


def wire_text(value: str) -> bytes:
    """A text as Kafka's protocol writes it: its length and its bytes."""
    return struct.pack(">h", len(value)) + value.encode()


class Producer:
    """One connection that sends the same record again and again.

    Args:
        port: of the broker at 127.0.0.1.
        client_id: client id of the requests.
        topic: with a partition 0 that this broker leads.
        value_bytes: size of the record's value.
    """

    def __init__(self, port: int, client_id: str, topic: str, value_bytes: int) -> None:
        self._port = port
        batch = record_batch(b"x" * value_bytes)
        self._head = wire_text(client_id)
        self._body = (
            struct.pack(">hhii", -1, 1, _TIMEOUT_MS, 1)
            + wire_text(topic)
            + struct.pack(">iii", 1, 0, len(batch))
            + batch
        )
        self._sent = 0
        self._socket = self._connected()

    def _connected(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self._port), timeout=2 * _TIMEOUT_MS / 1_000)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def reconnect(self) -> None:
        """Leave the connection, and open another one."""
        self._socket.close()
        self._socket = self._connected()

    def send(self) -> None:
        """Send one request, and do not wait for the response."""
        self._sent += 1
        whole = struct.pack(">hhi", _PRODUCE, _VERSION, self._sent) + self._head + self._body
        self._socket.sendall(struct.pack(">i", len(whole)) + whole)

    def receive(self, timeout_s: float | None = None) -> int | None:
        """Wait for the next response; its throttle (ms), or None if none came in time."""
        self._socket.settimeout(timeout_s)
        try:
            first = self._socket.recv(1)
        except (TimeoutError, BlockingIOError):
            return None
        self._socket.settimeout(2 * _TIMEOUT_MS / 1_000)
        [size] = struct.unpack(">i", first + self._exactly(3))
        found: int = struct.unpack(">i", self._exactly(size)[-4:])[0]
        return found

    def close(self) -> None:
        """Leave the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionError("the broker closed the connection")
            found += part
        return found
