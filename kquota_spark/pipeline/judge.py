"""JUDGE: governed usage to `decisions`. The broker's sample rings, replayed with state per quota manager."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.pipeline.bucket_judge import Configs, Judged, JudgedBucket, ManagerJudge
from kquota_spark.pipeline.kept_imports import keep_imports, look_seldom
from kquota_spark.pipeline.sent import BUCKET_KEYS, MANAGER_KEYS, Manager, manager_of, received
from kquota_spark.schema.columns import Column
from kquota_spark.schema.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM_DECISION = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "rate_at_most_per_s", "quota_used_percent", "amount",
    "requests", "throttle_ms", "observed_throttle_ms", "throttled_requests", "observed_throttled_requests",
    "total_throttle_ms", "late", "users", "client_ids", "observed_total_throttle_ms",
    "unsized_requests",
)  # fmt: skip
FROM_AGREEMENT = {
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
    "window_off": "window_off",
    "window_off_false_positive": "window_off_false_positive",
    "window_off_false_negative": "window_off_false_negative",
}
DECIDED = (
    *(column for column in DECISIONS.columns if column.name not in ("event_date", "second")),
    Column("second_ms", "bigint", "start of the second"),
)
"""Columns as they come from the workers."""
_OUTPUT_COLUMNS = [column.name for column in DECIDED]
_FIRST_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
_OUTPUT_DDL = ", ".join(f"{column.name} {column.type}" for column in DECIDED)


def to_decisions(governed: DataFrame, config: RateConfig, mutation_config: RateConfig) -> DataFrame:
    """Rows of `decisions`, one a second of a bucket, from GOVERN's stream; `config` is for rows that name none."""
    judged = governed.groupBy("manager").transformWithStateInPandas(
        statefulProcessor=_ManagerProcessor(Configs(config, mutation_config)),
        outputStructType=_OUTPUT_DDL,
        outputMode="Append",
        timeMode="None",
    )
    return judged.transform(as_decisions)


def as_decisions(decided: DataFrame) -> DataFrame:
    """Rows of `decisions` from rows of `DECIDED`."""
    second = F.timestamp_millis("second_ms")
    return decided.withColumns({"second": second, "event_date": F.to_date(second)}).select(*DECISIONS.names)


class _ManagerProcessor(StatefulProcessor):
    """Keeps one `ManagerJudge` per key: a key for each bucket would cost a millisecond or two a micro-batch.

    Buckets idle for longer than their rings remember are forgotten when their manager is used; there are few managers.
    Time to live by processing time is not used: it would wipe live state after a stop of the job.
    """

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _silence_first_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        look_seldom()
        self._state = handle.getValueState("buckets", "state binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        manager, stored = manager_of(key[0]), self._state.get()
        judge = ManagerJudge(manager.quota_type, self._configs, None if stored is None else bytes(stored[0]))
        found = judge.judge(
            (bucket, received(sent))
            for frame in rows
            for bucket, sent in zip(frame["bucket"], frame["sent"], strict=True)
        )
        self._state.update((judge.state,))
        yield pd.DataFrame(decided_columns(manager, found), columns=_OUTPUT_COLUMNS)

    def close(self) -> None:
        keep_imports()


def _silence_first_worker() -> None:
    """Have the worker that asks for the state's schema, once per start, print no pages of it on the driver's stderr.

    An error in it reaches the driver as an exception.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _FIRST_WORKER:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def decided_columns(manager: Manager, found: Iterable[JudgedBucket]) -> dict[str, Sequence[Any]]:
    """The columns of `DECIDED`."""
    rows = [
        row
        for each in found
        for row in _decided_rows(manager, each.bucket, each.judged, each.known_through_ms)
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_ROW)
    return dict(zip(_ROW, columns, strict=True))


def _decided_rows(
    manager: Manager, bucket: str, judged: Iterable[Judged], known_through_ms: int | None
) -> Iterator[tuple[Any, ...]]:
    """Rows of one bucket, with the columns that `decided_columns` names."""
    place = manager.cluster_id, manager.broker_id, manager.quota_type.value, *_tags(bucket)
    for decision, model_variant in judged:
        is_behind = known_through_ms is None or known_through_ms < decision.second_ms + 1_000
        is_certain = decision.is_certain and not is_behind
        yield (
            *place, *_of_decision(decision), *_of_agreement(decision.agreement), is_behind, is_certain, model_variant,
            "log", decision.second_ms,
        )  # fmt: skip


def _tags(bucket: str) -> tuple[str | None, ...]:
    tags = msgspec.json.decode(bucket)
    return *tags, *[None] * (len(BUCKET_KEYS) - len(tags))


_of_decision = attrgetter(*FROM_DECISION)
_of_agreement = attrgetter(*FROM_AGREEMENT.values())
_ROW = (
    *MANAGER_KEYS, *BUCKET_KEYS, *FROM_DECISION, *FROM_AGREEMENT, "is_rules_behind", "is_certain", "model_variant",
    "source", "second_ms",
)  # fmt: skip
