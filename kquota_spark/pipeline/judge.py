"""JUDGE: governed usage to `decisions`. The broker's sample ring, replayed with state per bucket."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from kquota_spark.model.decision import Decision, Stretch, judge_bucket
from kquota_spark.model.points import Point
from kquota_spark.model.replay import BucketReplay, Governing
from kquota_spark.model.sampled_rate import RateConfig
from kquota_spark.schema.columns import Column
from kquota_spark.schema.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

KEYS = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags")
_FROM_DECISION = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "quota_used_percent", "amount", "requests",
    "throttle_ms", "observed_throttle_ms", "throttled_requests", "observed_throttled_requests",
    "total_throttle_ms", "late", "users", "client_ids",
)  # fmt: skip
_FROM_AGREEMENT = {
    "requests_judged": "requests_judged",
    "requests_agreeing": "agreeing",
    "false_positive": "false_positive",
    "false_negative": "false_negative",
    "judged_throttled": "throttled_by_broker",
    "judged_near_limit": "near_limit",
    "uncertain": "uncertain",
    "uncertain_wrong": "uncertain_wrong",
    "inferred": "inferred",
    "excluded": "excluded",
    "throttle_errors_ms": "throttle_errors_ms",
}
_FORM = 3
"""Version of the state's form; another release that cannot read it says so."""
DECIDED = (
    *(column for column in DECISIONS.columns if column.name not in ("event_date", "second")),
    Column("second_ms", "bigint", "start of the second"),
)
"""Columns as they come from the workers."""
_OUTPUT_DDL = ", ".join(f"{column.name} {column.type}" for column in DECIDED)


def to_decisions(governed: DataFrame, config: RateConfig, judge_lateness: str) -> DataFrame:
    """Rows of `decisions`, one a second of a bucket.

    Args:
        governed: stream of GOVERN's rows.
        config: sample ring of the brokers.
        judge_lateness: watermark delay; generous, because rows behind it vanish before the processor.
    """
    sent = governed.withWatermark("second", judge_lateness).transform(as_sent)
    judged = sent.groupBy("bucket").transformWithState(
        statefulProcessor=_BucketProcessor(config),
        outputStructType=_OUTPUT_DDL,
        outputMode="Append",
        timeMode="EventTime",
    )
    return judged.transform(as_decisions)


def as_decisions(decided: DataFrame) -> DataFrame:
    """Rows of `decisions` from rows of `DECIDED`."""
    second = F.timestamp_millis("second_ms")
    return decided.withColumns({"second": second, "event_date": F.to_date(second)}).select(*DECISIONS.names)


def as_sent(governed: DataFrame) -> DataFrame:
    """Governed rows as they travel to the workers: bucket, `sent` (see `Sent`) and second."""
    return governed.select(
        # Without tags of a callback the last one is null and left out.
        F.to_json(F.array_compact(F.array(*(F.col(name).cast("string") for name in KEYS)))).alias("bucket"),
        F.to_json(_sent()).alias("sent"),
        "second",
    )


class Sent(msgspec.Struct, gc=False):
    """A governed row as it comes to the worker: one JSON text.

    In the row form every cell costs 2 microseconds to hand over and every number of an array another 0.1;
    this is a tenth of that. The points come field by field, because a function over the elements of an array
    runs uncompiled in Spark, at 3 microseconds a point.
    """

    second_ms: int
    user: str
    client_id: str
    valid_from_ms: int
    valid_to_ms: int
    has_request_quota: bool
    points: list[list[int]]
    rule: str | None = None
    rule_version: int | None = None
    level: int | None = None
    limit_per_s: str | None = None
    """As text: JSON has no infinity, and a double comes back from its shortest text without loss."""
    known_through_ms: int | None = None


received = msgspec.json.Decoder(Sent).decode
"""A governed row, from the text of its column `sent`."""


def _sent() -> SparkColumn:
    """The struct that `Sent` reads."""
    made = {
        "points": F.expr(
            f"array({', '.join(f'CAST(points.{name} AS ARRAY<BIGINT>)' for name in Point._fields)})"
        ),
        "limit_per_s": F.col("limit_per_s").cast("string"),
    }
    return F.struct(*(made.get(name, F.col(name)).alias(name) for name in Sent.__struct_fields__))


class _BucketProcessor(StatefulProcessor):
    """Keeps one `BucketReplay` per key; a bucket idle for longer than its ring remembers is forgotten.

    One timer per key: when it fires early, because the bucket was used again, it is set anew. Time to live
    by processing time is not used: it would wipe live state after a stop of the job.
    """

    def __init__(self, config: RateConfig) -> None:
        self._config = config

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # Points come and go by the thousand and hold no cycles: the collector need not look so often.
        gc.set_threshold(50_000, 20, 20)
        self._state = handle.getValueState("replay", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        stored = self._state.get()
        replay = BucketReplay(self._config) if stored is None else decoded(bytes(stored[0]), self._config)
        rows_sent = [received(row.sent) for row in rows]
        decisions = judge_bucket(replay, map(stretch_of, rows_sent))
        self._state.update((encoded(replay),))
        if stored is None:
            self._handle.registerTimer(self._forget_at_ms(replay))
        for decision in decisions:
            yield Row(**decision_values(key[0], decision, rows_sent[0].known_through_ms, self._config))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        stored = self._state.get()
        if stored is not None:
            forget_at_ms = self._forget_at_ms(decoded(bytes(stored[0]), self._config))
            if forget_at_ms > expiredTimerInfo.getExpiryTimeInMs():
                self._handle.registerTimer(forget_at_ms)
            else:
                self._state.clear()
        return iter(())

    def close(self) -> None:
        pass

    def _forget_at_ms(self, replay: BucketReplay) -> int:
        return replay.folded_through_ms + self._config.horizon_ms


_point = partial(tuple.__new__, Point)


def stretch_of(sent: Sent) -> Stretch:
    """What `judge_bucket` takes."""
    limit = None if sent.limit_per_s is None else float(sent.limit_per_s)
    governing = Governing(limit, sent.valid_from_ms, sent.valid_to_ms, sent.has_request_quota)
    points = list(map(_point, zip(*sent.points, strict=True)))
    return Stretch(
        sent.second_ms, sent.user, sent.client_id, governing, sent.level, sent.rule, sent.rule_version, points
    )


def decision_values(
    bucket: str, decision: Decision, known_through_ms: int | None, config: RateConfig
) -> dict[str, Any]:
    """The columns of `DECIDED`."""
    is_behind = known_through_ms is None or known_through_ms < decision.second_ms + 1_000
    cluster_id, broker_id, *names = msgspec.json.decode(bucket)
    values: dict[str, Any] = dict(zip_longest(KEYS, (cluster_id, int(broker_id), *names)))
    values.update({name: getattr(decision, name) for name in _FROM_DECISION})
    values.update({name: getattr(decision.agreement, source) for name, source in _FROM_AGREEMENT.items()})
    values["is_rules_behind"] = is_behind
    values["is_certain"] = decision.is_certain and not is_behind
    values["model_variant"] = config.name
    values["source"] = "log"
    values["second_ms"] = decision.second_ms
    return values


def encoded(replay: BucketReplay) -> bytes:
    """State of a bucket as MessagePack; the first number is the version of this form."""
    rings = [ring.state for ring in replay.rings]
    return msgspec.msgpack.encode([_FORM, replay.folded_through_ms, rings])


def decoded(data: bytes, config: RateConfig) -> BucketReplay:
    """The state back.

    Raises:
        ValueError: written by another release in a form that this one does not know.
    """
    form, *parts = msgspec.msgpack.decode(data)
    if form != _FORM:
        msg = f"state of a bucket has form {form}, expected {_FORM}: use a new checkpoint"
        raise ValueError(msg)
    folded_through_ms, rings = parts
    replay = BucketReplay(config, rings)
    replay.folded_through_ms = folded_through_ms
    return replay
