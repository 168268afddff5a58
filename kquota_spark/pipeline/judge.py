"""JUDGE: turns governed usage into `decisions`; replays the broker's sample rings with state per shard of buckets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.decision import QuietSecond, used_percent
from kquota_spark.pipeline.bucket_judge import (
    DECIDED_NAMES,
    Configs,
    Judged,
    JudgedBucket,
    ShardJudge,
    decided_values,
    is_behind,
)
from kquota_spark.pipeline.kept_imports import collect_seldom, keep_imports
from kquota_spark.pipeline.sent import BUCKET_KEYS, MANAGER_KEYS, Manager, unpacked_pieces
from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.schema.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECIDED = (
    *(column for column in DECISIONS.columns if column.name not in ("event_date", "second")),
    Column("second_ms", "bigint", "start of the second"),
)
"""Columns as they come from the workers."""
JUDGED = Table(
    "judged",
    "seconds of one shard",
    (
        Column("decisions", "binary", "rows of `decisions` as an Arrow batch; Spark does not look into them"),
        Column("shadow", "binary", "rows of `shadow_decisions`, likewise; null for none"),
    ),
)
_FIRST_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
_DECISIONS, _SHADOW = DECISIONS.arrow_schema(), SHADOW_DECISIONS.arrow_schema()


def to_judged(sharded: DataFrame, config: RateConfig, mutation_config: RateConfig, shards: int) -> DataFrame:
    """Rows of `JUDGED` from GOVERN's stream.

    Args:
        sharded: rows of `pipeline.govern.SHARDED`.
        config: windows of the sampled rates, for rows that name none.
        mutation_config: windows of mutations.
        shards: number of values that hold the state; it must stay the same as long as the state exists.
    """
    return sharded.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=_ShardProcessor(Configs(config, mutation_config), shards),
        outputStructType=JUDGED.ddl,
        outputMode="Append",
        timeMode="None",
    )


def decisions_of(judged: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of `decisions`, batch by batch, from rows of `JUDGED`."""
    for packed in judged["decisions"]:
        yield pa.ipc.read_record_batch(packed.as_buffer(), _DECISIONS)


def shadow_decisions_of(judged: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of `shadow_decisions`, batch by batch, from rows of `JUDGED`."""
    for packed in judged["shadow"].drop_null():
        yield pa.ipc.read_record_batch(packed.as_buffer(), _SHADOW)


def as_decisions(decided: DataFrame) -> DataFrame:
    """Rows of `decisions` from rows of `DECIDED`."""
    second = F.timestamp_millis("second_ms")
    return decided.withColumns({"second": second, "event_date": F.to_date(second)}).select(*DECISIONS.names)


class _ShardProcessor(StatefulProcessor):
    """Keeps one `ShardJudge` per key.

    A key costs one or two milliseconds per micro-batch. One per bucket would be too many, and one per shard of each
    quota manager grows with the brokers. A value is read and written whole. So the value of a manager with 100,000 busy
    buckets would have 150 MB.

    A bucket that is idle for longer than its ring remembers is forgotten when its shard is used. A time to live by
    processing time would delete live state after a stop of the job.
    """

    def __init__(self, configs: Configs, shards: int) -> None:
        self._configs, self._shards = configs, shards

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _silence_first_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        collect_seldom()
        self._state = handle.getValueState("buckets", "state binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        judge = ShardJudge(self._configs, self._shards, None if stored is None else bytes(stored[0]))
        found = judge.judge(unpacked_pieces(packed) for frame in rows for packed in frame["pieces"])
        state = judge.state
        if state is None:
            self._state.clear()
        else:
            self._state.update((state,))
        beside = None if judge.shadow is None else judge.shadow.rows
        if found or beside is not None:
            shadow = None if beside is None else beside.serialize().to_pybytes()
            decisions = decided_batch(found).serialize().to_pybytes()
            yield pd.DataFrame({"decisions": [decisions], "shadow": [shadow]})

    def close(self) -> None:
        keep_imports()


def _silence_first_worker() -> None:
    """Keep the worker that reads the state's schema, once per start, from printing pages on the driver's stderr.

    An error in it still reaches the driver as an exception.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _FIRST_WORKER:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def decided_batch(found: Iterable[JudgedBucket]) -> pa.RecordBatch:
    """Rows of `decisions` from judged buckets."""
    quiet, others = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    places = dict[Manager, tuple[str, int, str]]()
    for manager, bucket, judged, known_through_ms in found:
        place = places.get(manager)
        if place is None:
            place = places[manager] = manager.cluster_id, manager.broker_id, manager.quota_type.value
        for second, model_variant in judged:
            is_rules_behind = is_behind(known_through_ms, second.second_ms)
            if isinstance(second, QuietSecond):
                quiet.append((*place, *bucket, *second, is_rules_behind, model_variant))
            else:
                values = decided_values(Judged(second, model_variant), is_rules_behind=is_rules_behind)
                others.append((*place, *bucket, *values))
    tables = []
    if quiet:
        tables.append(_table(_quiet_columns(quiet), len(quiet)))
    if others:
        tables.append(_table(dict(zip(_ROW, zip(*others, strict=True), strict=True)), len(others)))
    if not tables:
        return pa.RecordBatch.from_pylist([], schema=_DECISIONS)
    return pa.concat_tables(tables).combine_chunks().to_batches()[0]


def _quiet_columns(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The columns that are not 0, for seconds in which nothing was throttled."""
    (
        cluster_id, broker_id, quota_type, user, client_id, tags,
        second_ms, governed, rate, amount, requests, near_limit, users, client_ids, is_behind, model_variant,
    ) = zip(*rows, strict=True)  # fmt: skip
    _, _, _, governing, level, rule, rule_version, _ = zip(*governed, strict=True)
    limits = [each[0] for each in governing]
    counts = pa.array(requests, pa.int64())
    return {
        "cluster_id": cluster_id,
        "broker_id": broker_id,
        "quota_type": quota_type,
        "bucket_user": user,
        "bucket_client_id": client_id,
        "bucket_tags": tags,
        "level": level,
        "rule": rule,
        "rule_version": rule_version,
        "limit_per_s": limits,
        "rate_per_s": rate,
        "rate_at_most_per_s": pa.nulls(len(rows), pa.float64()),
        "quota_used_percent": list(map(used_percent, rate, limits)),
        "amount": amount,
        "requests": counts,
        "requests_judged": counts,
        "requests_agreeing": counts,
        "judged_near_limit": near_limit,
        "throttle_errors_ms": ((),) * len(rows),
        "users": users,
        "client_ids": client_ids,
        "is_rules_behind": is_behind,
        "is_certain": [not each for each in is_behind],
        "model_variant": model_variant,
        "source": ("log",) * len(rows),
        "second_ms": second_ms,
    }


def _table(columns: Mapping[str, Any], count: int) -> pa.Table:
    """Rows of `decisions` from those columns of `DECIDED` that are not 0."""
    second = pa.array(columns["second_ms"], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    columns = {**columns, "second": second, "event_date": second.cast(pa.date32())}
    arrays = []
    for field in _DECISIONS:
        column = columns.get(field.name)
        if column is None:
            arrays.append(pa.repeat(pa.scalar(0, field.type), count))
        elif isinstance(column, pa.Array):
            arrays.append(column.cast(field.type))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=_DECISIONS)


def decided_columns(found: Iterable[JudgedBucket]) -> dict[str, Sequence[Any]]:
    """The columns of `DECIDED` from judged buckets."""
    rows = list[tuple[Any, ...]]()
    for manager, bucket, judged, known_through_ms in found:
        place = manager.cluster_id, manager.broker_id, manager.quota_type.value, *bucket
        for each in judged:
            is_rules_behind = is_behind(known_through_ms, each.second.second_ms)
            rows.append((*place, *decided_values(each, is_rules_behind=is_rules_behind)))
    columns = zip(*rows, strict=True) if rows else [()] * len(_ROW)
    return dict(zip(_ROW, columns, strict=True))


_ROW = (*MANAGER_KEYS, *BUCKET_KEYS, *DECIDED_NAMES)
