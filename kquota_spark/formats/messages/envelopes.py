"""The envelopes of log shippers: the line, the broker that it comes from, and the time when it was read.

Filebeat, Fluent Bit, Fluentd, Vector and Logstash write a JSON object that contains the line as text. rsyslog does so
with a JSON template. Without one it writes the line after a syslog header (RSYSLOG_FileFormat, RFC 3164 or 5424).
Names of fields are those of the tools' own output; tests/data/envelopes holds samples with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.model.quotas.rules import END_MS

MAX_ENVELOPE_BYTES = 9 << 20
"""Maximum size of an envelope: a line of 4 MB with every second character escaped, and the fields around it."""

AUTO, RAW, JSON = "auto", "raw", "json"
_BLANK = b" \t\r\n\xef\xbb\xbf"
_SYSLOG = re.compile(
    # <PRI> and the version of RFC 5424, a time of RFC 3339 or RFC 3164, the host, then tag or app name, ids and data.
    rb"(?:<\d{1,3}>(?:1 )?)?(\d{4}-\d\d-\d\dT\S{8,30}|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) "
    rb"[^\n]{0,512}?(?=\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d{3}\] )"
)
# Smallest number that is read as seconds, and smallest that is read as milliseconds; both are times in 1973.
_LEAST_S, _LEAST_MS = 1e8, 1e11


class Field(NamedTuple):
    """A possible place of a field: `a.b` is `b` inside `a`, or a field with the name `a.b`."""

    path: str
    parts: tuple[str, ...]


def _fields(paths: Iterable[str]) -> tuple[Field, ...]:
    return tuple(Field(path, tuple(path.split("."))) for path in paths)


class _Layout(NamedTuple):
    """The paths of the fields in one kind of envelope, separated by blanks; the first that exists counts."""

    message: str
    broker: str = "broker_id"
    host: str = ""
    time: str = "@timestamp"


_LAYOUTS = {
    "filebeat": _Layout("message", "fields.broker_id broker_id", "host.name agent.hostname"),
    "fluent-bit": _Layout("log message", host="host hostname"),
    "fluentd": _Layout("message", host="hostname", time="time"),
    "vector": _Layout("message", host="host", time="timestamp"),
    "logstash": _Layout("message", "broker_id fields.broker_id", "host.name host.hostname host"),
    "rsyslog": _Layout(
        "message msg", host="host hostname fromhost", time="@timestamp timestamp timereported"
    ),
    JSON: _Layout("message"),
}
"""Layouts by kind of envelope. The first name of a field is the tool's default."""
_ANY = _Layout(
    "message log msg",
    "broker_id fields.broker_id",
    "host.name host.hostname host hostname",
    "@timestamp timestamp time",
)
KINDS = (AUTO, RAW, *_LAYOUTS)


Fields = Mapping[str, msgspec.Raw]
"""The fields of an envelope, undecoded."""


class Envelopes:
    """Extracts lines from one kind of envelope, or from any.

    Args:
        kind: one of `KINDS`; `auto` distinguishes a line from an envelope by its beginning.
        message: path of the field with the line, instead of the tool's own.
        broker: path of the field with the broker's id or name, likewise.
        timestamp: path of the field with the time at which the line was read, likewise.
    """

    def __init__(self, kind: str = AUTO, *, message: str = "", broker: str = "", timestamp: str = "") -> None:
        layout = _LAYOUTS.get(kind, _ANY)
        self.takes_lines = kind in {AUTO, RAW}
        """Whether a value that begins like a line of the log is one: then `opened` need not be called."""
        self._takes_json = kind != RAW
        self._takes_syslog = kind in {AUTO, "rsyslog"}
        self._message = _fields([message] if message else layout.message.split())
        self._broker = _fields([broker] if broker else layout.broker.split())
        self._host = () if broker else _fields(layout.host.split())
        self._time = _fields([timestamp] if timestamp else layout.time.split())
        self._object = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._text = msgspec.json.Decoder(str)
        self._scalar = msgspec.json.Decoder(str | int | float | None)

    def opened(self, value: bytes) -> tuple[bytes, Fields]:
        """The line in a message and the envelope's fields; a value that is not an envelope is itself the line.

        Raises:
            Unreadable: the value is not such an envelope, or contains no line; the reason never quotes it.
        """
        bare = value.lstrip(_BLANK)
        if self._takes_json and bare.startswith(b"{"):
            return self._of_json(bare)
        header = _SYSLOG.match(value) if self._takes_syslog else None
        if header is not None:
            time, host = (
                msgspec.Raw(msgspec.json.encode(text.decode("utf-8", "replace"))) for text in header.groups()
            )
            return _one_line(value[header.end() :]), {"host": host, "timestamp": time}
        if self.takes_lines:
            return value, {}
        raise Unreadable("envelope: not of the kind that kafka.envelope names")

    def broker(self, fields: Fields) -> bytes | None:
        """The content of the field for the broker: an id or a name; None if there is none."""
        return _bytes(self._first(fields, self._broker))

    def host(self, fields: Fields) -> bytes | None:
        """The host that the shipper ran on; always None if a field for the broker was named."""
        return _bytes(self._first(fields, self._host))

    def read_ms(self, fields: Fields) -> int | None:
        """The time when the shipper read the line, epoch ms; None if it is not a time, or has no time zone."""
        value = self._first(fields, self._time)
        return None if value is None else _epoch_ms(value)

    def _of_json(self, value: bytes) -> tuple[bytes, Fields]:
        if len(value) > MAX_ENVELOPE_BYTES:
            raise Unreadable(f"envelope longer than {MAX_ENVELOPE_BYTES} bytes")
        try:
            fields = self._object.decode(value)
            for field in self._message:
                raw = self._at(fields, field)
                # `log` is an object in Filebeat, and a text in Fluent Bit.
                if raw is not None and bytes(raw).startswith(b'"'):
                    return _one_line(self._text.decode(raw).encode()), fields
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unreadable("envelope: not valid JSON (cut in half, or not UTF-8)") from None
        names = ", ".join(field.path for field in self._message)
        raise Unreadable(f"envelope: no text in field {names}")

    def _first(self, fields: Fields, places: Sequence[Field]) -> str | int | float | None:
        for field in places:
            raw = self._at(fields, field)
            if raw is None:
                continue
            try:
                value: str | int | float | None = self._scalar.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # an object or a list: `host` of Logstash is a text or an object
            if value is not None:
                return value
        return None

    def _at(self, fields: Fields, field: Field) -> msgspec.Raw | None:
        """The value at a path, undecoded; None if there is none."""
        raw = fields.get(field.path)
        if raw is not None or len(field.parts) == 1:
            return raw
        inner = fields
        for part in field.parts[:-1]:
            raw = inner.get(part)
            if raw is None:
                return None
            try:
                inner = self._object.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
        return inner.get(field.parts[-1])


def _bytes(value: str | int | float | None) -> bytes | None:
    return None if value is None else str(value).encode("utf-8", "replace")


def _one_line(text: bytes) -> bytes:
    """A line without its line end, which Docker's log driver keeps, and without the blank that syslog prepends."""
    line = text.strip()
    if b"\n" in line:
        raise Unreadable("envelope: several lines in one message")
    return line


def _epoch_ms(value: str | int | float) -> int | None:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return None if moment.tzinfo is None else round(moment.timestamp() * 1_000)
    if _LEAST_S <= value < _LEAST_MS:
        return round(value * 1_000)
    return round(value) if _LEAST_MS <= value <= END_MS else None
