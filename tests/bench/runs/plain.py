"""The same audit in one plain Python process, without Spark: what the job has to beat to be worth its weight.

The parser, the charges, the governor, the replay and the tables are the product's. Points stay Python objects from the
line to the verdict, rings stay in memory, and nothing is remembered over a restart.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message
from deltalake import write_deltalake

from kquota_spark.checkpoints.known import KnownLoader
from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.kafka.questions import message_format
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import GovernedSecond, Replay, judge_seconds, replay_of
from kquota_spark.pipeline.bucket_judge import Configs, Judged, JudgedBucket
from kquota_spark.pipeline.charges import CLIENT_KEYS, charges_of
from kquota_spark.pipeline.ingest import MessageReader, ingest_settings, parsed
from kquota_spark.pipeline.judge import decided_batch
from kquota_spark.pipeline.measure import usage_batch
from kquota_spark.pipeline.sent import BucketTags, Manager, bucket_tags
from tests.bench.processes import process_cpu_s
from tests.bench.rounds import Round
from tests.support.pipeline.packed import packed_bytes

_AT_ONCE = 100_000


class _Client(NamedTuple):
    broker_id: int
    quota_type: QuotaType
    principal_type: str
    user: str
    client_id: str
    second: int


class PlainAudit:
    """The audit of one topic.

    Args:
        settings: the configuration.
        tables: where to write.
    """

    def __init__(self, settings: Settings, tables: Path) -> None:
        self._settings, self._tables = settings, tables
        self._reader = MessageReader(ingest_settings(settings, message_format(settings)))
        self._known = KnownLoader(settings)()
        self._configs = Configs(rate_config(settings), mutation_config(settings))
        self._open: defaultdict[_Client, list[Point]] = defaultdict(list)
        self._replays: dict[tuple[int, QuotaType, BucketTags], Replay] = {}
        self._newest = 0

    def take(self, messages: list[Message], *, is_end: bool) -> None:
        """Read messages, and judge the seconds that are closed by them."""
        if messages:
            batch = pa.RecordBatch.from_pydict(
                {name: pa.array(list(map(of, messages)), kind) for name, kind, of in _OF}
            )
            rows = parsed(batch, self._reader)
            self._write("requests", rows)
            self._charge(rows)
        bound = self._newest - self._settings.stream.allowed_lateness // 1_000
        closed = [client for client in self._open if is_end or client.second < bound]
        if closed:
            self._judge({client: self._open.pop(client) for client in closed})

    def _charge(self, rows: pa.RecordBatch) -> None:
        charges = charges_of(rows, self._known.governor.coverage)
        seconds = pc.divide(charges["record_time_ms"], 1_000)
        clients = zip(*(charges[name].to_pylist() for name in CLIENT_KEYS), seconds.to_pylist(), strict=True)
        points = zip(*(charges[name].to_pylist() for name in Point._fields), strict=True)
        for (broker_id, quota_type, *client), point in zip(clients, map(Point._make, points), strict=True):
            self._open[_Client(broker_id, QuotaType(quota_type), *client)].append(point)
        self._newest = max(pc.max(seconds).as_py() or 0, self._newest)

    def _judge(self, closed: Mapping[_Client, list[Point]]) -> None:
        by_bucket: defaultdict[tuple[int, QuotaType, BucketTags], list[GovernedSecond]] = defaultdict(list)
        for client, copies in closed.items():
            points = sorted(set(copies))
            principal = Principal(client.principal_type, client.user)
            asked = (client.broker_id, client.quota_type, principal, client.client_id)
            found = self._known.governor.govern(*asked, points[0].record_time_ms)
            rule = (found.relied_on, found.level, found.rule, found.rule_version)
            governed = GovernedSecond(client.second * 1_000, client.user, client.client_id, *rule, points)
            key = (client.broker_id, client.quota_type, bucket_tags(found.bucket, has_tags=False))
            by_bucket[key].append(governed)
        seconds: dict[str, Any] = {
            "broker_id": pa.array([client.broker_id for client in closed], pa.int32()),
            **{name: [getattr(client, name) for client in closed] for name in _Client._fields[1:5]},
            "second": pa.array(
                [client.second * 1_000_000 for client in closed], pa.timestamp("us", tz="UTC")
            ),
            "points": pa.array([[packed_bytes(points)] for points in closed.values()], pa.list_(pa.binary())),
        }
        self._write("usage", usage_batch(pa.RecordBatch.from_pydict(seconds), self._settings.cluster_id))
        self._write("decisions", self._decided(by_bucket))

    def _decided(
        self, by_bucket: Mapping[tuple[int, QuotaType, BucketTags], list[GovernedSecond]]
    ) -> pa.RecordBatch:
        found = []
        for (broker_id, quota_type, bucket), governed_seconds in by_bucket.items():
            config = self._configs.of(quota_type, None)
            key = (broker_id, quota_type, bucket)
            if key not in self._replays:
                self._replays[key] = replay_of(quota_type, config)
            judged = [
                Judged(second, config.name) for second in judge_seconds(self._replays[key], governed_seconds)
            ]
            manager = Manager(self._settings.cluster_id, broker_id, quota_type)
            found.append(JudgedBucket(manager, bucket, judged, self._known.known_through_ms))
        return decided_batch(found)

    def _write(self, name: str, rows: pa.RecordBatch) -> None:
        place = str(self._tables / name)
        write_deltalake(place, pa.Table.from_batches([rows]), mode="append", partition_by=["event_date"])


_OF: tuple[tuple[str, pa.DataType, Callable[[Message], Any]], ...] = (
    ("topic", pa.string(), Message.topic),
    ("partition", pa.int32(), Message.partition),
    ("offset", pa.int64(), Message.offset),
    ("timestamp_ms", pa.int64(), lambda message: message.timestamp()[1]),
    ("written_by_ms", pa.int64(), lambda message: message.timestamp()[1]),
    ("value", pa.binary(), Message.value),
    ("broker", pa.binary(), Message.key),
)


def plain_round(settings: Settings, cluster: Cluster, tables: Path, count: int) -> Round:
    """Audit some messages of the topic, so many of them; its CPU is this process's."""
    audit, started_s = PlainAudit(settings, tables), 0.0
    broker, before_s, broker_before_s = cluster.brokers[0].pid, 0.0, 0.0
    for messages, is_end in _read(settings, cluster.client_settings(), count):
        if not started_s:
            started_s, before_s, broker_before_s = (
                time.monotonic(),
                time.process_time(),
                process_cpu_s(broker),
            )
        audit.take(messages, is_end=is_end)
    cpu_s = {"process": time.process_time() - before_s, "broker": process_cpu_s(broker) - broker_before_s}
    return Round(count, time.monotonic() - started_s, cpu_s)


def _read(
    settings: Settings, client_settings: Mapping[str, str], count: int
) -> Iterator[tuple[list[Message], bool]]:
    own = {"group.id": "plain", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**client_settings, **own, "fetch.max.bytes": 50_000_000})
    consumer.subscribe([settings.kafka.topic])
    read, waiting = 0, list[Message]()
    while read < count:
        waiting += consumer.consume(min(20_000, count - read - len(waiting)), 1.0)
        if len(waiting) >= _AT_ONCE or read + len(waiting) >= count:
            read += len(waiting)
            yield waiting, read >= count
            waiting = []
    consumer.close()
