"""Broken messages of collectors: every one becomes rows that Arrow can hold, and none stops the query."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa

from kquota_spark.pipeline.jmx.ingest import JmxSettings, sampled_batch
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from tests.support.chance import Chance
from tests.support.logs.jmx_messages import TIME_MS, jolokia, telegraf
from tests.support.places import DATA

MESSAGES = 4_000
SETTINGS = JmxSettings("demo", {"kafka1": 1}, {}, 256, 60_000)
_WORDS = [
    *(b"-", b"0", b"9" * 40, b"9" * 400, b"1e308", b"1e999", b"NaN", b'"', b"}", b"{", b"[", b"]", b",", b"null", b":"),
    *(b"\\ud800", b"\\u0000", b"\xff", b"\x00", b"true", b"[" * 5_000, b'{"a":' * 5_000, b"%zz", b"%", b'\\"', b"*"),
]  # fmt: skip


def real_messages() -> list[bytes]:
    """One message of each form, and some of the captures."""
    telegrafs = gzip.decompress(
        (DATA / "jmx-telegraf" / "telegraf-batch.jsonl.gz").read_bytes()
    ).splitlines()[:4]
    polls = gzip.decompress((DATA / "zk39-levels" / "jmx.jsonl.gz").read_bytes()).splitlines()[40:46]
    return [
        *telegrafs,
        *(json.loads(poll)["raw"].encode() for poll in polls),
        telegraf("kafka_quota_produce", {"byte-rate": 1.5, "queue-size": 3}, user="a%20b", client_id='"my:client"'),
        jolokia("kafka.server:type=Fetch,*", {'kafka.server:type=Fetch,client-id="a,b"': {"byte-rate": None}}),
        (b'{"@timestamp":"2026-11-21T06:25:00Z","jolokia":{"k":{"mbean":"kafka.server:type=Fetch,user=u",'
        b'"byte_rate":1.0}},"service":{"address":"kafka1:8778"},"labels":{"broker":"1"},"host":{"name":"h"}}'),
        (b'{"keyspace":"kafka1_9999.Produce.byte-rate","value":"1","timestamp":1795242300,"tags":{"typeName":'
        b'"type=Produce,user=u","attributeName":"byte-rate"}}'),
        (b'{"attributeName":"tokens","objDomain":"kafka.server","typeName":"type=ControllerMutation","epoch":'
        b'1795242300000,"value":1.0,"host":"kafka1","alias":"1"}'),
    ]  # fmt: skip


def broken(message: bytes, source: Chance) -> bytes:
    """A message with up to four pieces cut out, put in twice, or replaced by a word."""
    for _ in range(source.randint(1, 4)):
        start = source.randrange(len(message) + 1)
        end = min(len(message), start + source.choice((0, 1, 3, 10, 60)))
        piece = source.choice([b"", message[start:end] * 2, *source.sample(_WORDS, 3)])
        message = message[:start] + piece + message[end:]
    return message


def test_no_message_stops_the_query(chance: Chance) -> None:
    real = real_messages()
    values = [broken(chance.choice(real), chance) for _ in range(MESSAGES)]
    count = len(values)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["jmx"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp_ms": pa.array([TIME_MS] * count, pa.int64()),
            "written_by_ms": pa.array([TIME_MS] * count, pa.int64()),
            "value": pa.array(values, pa.binary()),
            "broker": pa.array([chance.choice([None, b"1", b"x", b"9" * 30]) for _ in values], pa.binary()),
        }
    )
    rows = sampled_batch(batch, SETTINGS)
    rows.validate(full=True)
    assert rows.schema == JMX_SAMPLES.arrow_schema()
    # Every message is there, and every row is a sample with a broker and a time, has a reason, or is of other metrics.
    assert set(rows.column("kafka_offset").to_pylist()) == set(range(count))
    kinds = rows.column("kind").to_pylist()
    assert set(kinds) == {"sample", "unreadable", "other"}
    for kind, broker_id, reason in zip(
        kinds, rows.column("broker_id").to_pylist(), rows.column("reason").to_pylist(), strict=True
    ):
        assert (kind == "unreadable") == bool(reason)
        assert (kind == "sample") == (broker_id is not None)
