"""What shippers made of six lines of a request log, with what each file says of the broker."""

from __future__ import annotations

from tests.support.logs.log_lines import T0_MS
from tests.support.places import DATA

SAMPLES = DATA / "envelopes"
LINES = (SAMPLES / "kafka-request.log").read_bytes().splitlines()
NOON_MS = T0_MS  # 2024-11-20 12:00:00 UTC
RAN_MS = 1_795_297_974_000  # 2026-11-21 21:52:54 UTC: when Filebeat and rsyslog were run


def sample(name: str) -> list[bytes]:
    content = (SAMPLES / name).read_bytes()
    # rsyslog ends each message with a line feed.
    end = b"\n\n" if name.startswith("rsyslog") else b"\n"
    found = [value + end[1:] for value in content.removesuffix(end).split(end)]
    assert len(found) == len(LINES) == 6
    return found


# file, kind, what it says of the broker, of the host, and the time of its first line
WRITTEN = [
    ("filebeat.json", "filebeat", b"1", b"kafka-1", RAN_MS + 219),
    ("fluent-bit.json", "fluent-bit", b"1", None, NOON_MS + 5_250),
    ("fluent-bit-docker.json", "fluent-bit", None, None, NOON_MS + 5_250),
    ("fluentd.json", "fluentd", b"1", b"kafka-1", NOON_MS + 5_250),
    ("vector.json", "vector", b"1", b"kafka-1", NOON_MS + 5_250),
    ("logstash-ecs.json", "logstash", b"1", b"kafka-1", NOON_MS + 5_250),
    ("logstash-legacy.json", "logstash", None, b"kafka-1", NOON_MS + 5_250),
    ("rsyslog-json.json", "rsyslog", None, b"kafka-1", RAN_MS + 94),
    ("rsyslog-file-format.txt", "rsyslog", None, b"kafka-1", RAN_MS + 94),
    ("rsyslog-rfc5424.txt", "rsyslog", None, b"kafka-1", RAN_MS + 93),
]
