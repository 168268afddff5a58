"""REJUDGE: JUDGE over a period of the past, in batch, through the same replay.

A bucket begins with an empty ring after its last pause that is longer than the ring remembers. Its requests from there
on warm the ring up. After the period, the replay continues until the new requests make no difference to the ring. To
find that out, each bucket is replayed twice: with the period as it was before, and as it is now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import remembers_ms
from kquota_spark.pipeline.bucket_judge import (
    BucketJudge,
    Configs,
    Judged,
    JudgedBucket,
    known_through_of,
    warm_start,
)
from kquota_spark.pipeline.judge import DECIDED, decided_columns
from kquota_spark.pipeline.sent import Manager, Sent, bucket_of, manager_of, received
from kquota_spark.schema.columns import Column, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT, OLD, NEW = "kept", "old", "new"
"""Parts of the input: outside of the period; inside, as it was judged before; inside, as it is now."""

REJUDGED = Table(
    "rejudged",
    "one second of one bucket from the start of the period",
    (
        *DECIDED,
        Column("is_warm", "boolean", "the ring began after a pause of the bucket, or with the first request"),
        Column(
            "differs_until_ms", "bigint", "from here on the new requests make no difference; null if never"
        ),
    ),
)


_second_ms = attrgetter("second_ms")


@dataclass(frozen=True, slots=True)
class Reach:
    """The period, and the time around it that has `KEPT` rows; epoch ms, ends exclusive."""

    from_ms: int
    to_ms: int
    warm_from_ms: int
    tail_to_ms: int
    is_from_beginning: bool
    """Whether nothing at all is older than `warm_from_ms`."""


def to_rejudged(parts: DataFrame, configs: Configs, reach: Reach) -> DataFrame:
    """Rows of `REJUDGED` from rows of GOVERN with the column `part`."""

    def judge(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        manager, bucket = (part.as_py() for part in key)
        return _rejudged_rows(manager_of(manager), bucket, rows, configs, reach)

    picked = parts.select("manager", "bucket", "sent", "part")
    return picked.groupBy("manager", "bucket").applyInArrow(judge, REJUDGED.ddl)


def _rejudged_rows(manager: Manager, bucket: str, rows: pa.Table, configs: Configs, reach: Reach) -> pa.Table:
    parts: dict[str, list[Sent]] = {KEPT: [], OLD: [], NEW: []}
    for row in rows.select(["part", "sent"]).to_pylist():
        parts[row["part"]].append(received(row["sent"]))
    judged = rejudged(manager.quota_type, parts[KEPT], parts[OLD], parts[NEW], configs, reach)
    known_through_ms = known_through_of(sent.known_through_ms for part in parts.values() for sent in part)
    found = JudgedBucket(manager, bucket_of(bucket), judged.decisions, known_through_ms)
    columns: dict[str, Any] = dict(decided_columns([found]))
    count = len(judged.decisions)
    columns |= {"is_warm": [judged.is_warm] * count, "differs_until_ms": [judged.differs_until_ms] * count}
    return pa.Table.from_pydict(columns, schema=REJUDGED.arrow_schema())


@dataclass(frozen=True, slots=True)
class Rejudged:
    """One bucket from the start of the period; see `REJUDGED`."""

    decisions: list[Judged]
    is_warm: bool
    differs_until_ms: int | None


def rejudged(
    quota_type: QuotaType,
    kept: Iterable[Sent],
    old: Collection[Sent],
    new: Collection[Sent],
    configs: Configs,
    reach: Reach,
) -> Rejudged:
    """Judge one bucket again.

    Args:
        quota_type: quota type of the bucket.
        kept: seconds outside of the period, in any order.
        old: seconds inside the period, as they were judged before.
        new: seconds inside the period, as they are now.
        configs: the windows of the brokers' quotas.
        reach: the period, and the time that `kept` covers.
    """
    around = sorted(kept, key=_second_ms)
    before = [sent for sent in around if sent.second_ms < reach.from_ms]
    named = {None, *(sent.rate_config for sent in (*around, *old, *new))}
    horizon_ms = max(remembers_ms(quota_type, configs.of(quota_type, name)) for name in named)
    start_ms, is_warm = warm_start(
        map(_second_ms, before), reach.from_ms, horizon_ms, reach.warm_from_ms,
        is_from_beginning=reach.is_from_beginning,
    )  # fmt: skip
    judge = BucketJudge(quota_type, configs)
    judge.judge(sent for sent in before if sent.second_ms >= start_ms)
    judge_before = BucketJudge(quota_type, configs, judge.state)
    decisions = judge.judge(new)
    judge_before.judge(old)
    differs_until_ms: int | None = None
    last_ms = max(reach.from_ms, judge.folded_through_ms, judge_before.folded_through_ms)
    if judge.memory == judge_before.memory:
        differs_until_ms = reach.to_ms
    after = (sent for sent in around if sent.second_ms >= reach.to_ms)
    for second_ms, group in groupby(after, key=_second_ms):
        rows = list(group)
        if differs_until_ms is None and (
            second_ms - last_ms >= horizon_ms or judge.memory == judge_before.memory
        ):
            differs_until_ms = second_ms
        decisions += judge.judge(rows)
        if differs_until_ms is None:
            judge_before.judge(rows)
        last_ms = second_ms + 1_000
    if differs_until_ms is None and reach.tail_to_ms - last_ms >= horizon_ms:
        differs_until_ms = max(last_ms, reach.to_ms)
    return Rejudged(decisions, is_warm, differs_until_ms)
