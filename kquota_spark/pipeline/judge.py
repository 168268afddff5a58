"""JUDGE: governed usage to `decisions`. The broker's sample ring, replayed with state per bucket."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from kquota_spark.model.sampled_rate import RateConfig
from kquota_spark.pipeline.bucket_judge import BucketJudge, Configs, Judged
from kquota_spark.pipeline.sent import KEYS, as_sent, quota_type_of, received
from kquota_spark.schema.columns import Column
from kquota_spark.schema.tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM_DECISION = (
    "level", "rule", "rule_version", "limit_per_s", "rate_per_s", "rate_at_most_per_s", "quota_used_percent", "amount",
    "requests", "throttle_ms", "observed_throttle_ms", "throttled_requests", "observed_throttled_requests",
    "total_throttle_ms", "late", "users", "client_ids",
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
}
DECIDED = (
    *(column for column in DECISIONS.columns if column.name not in ("event_date", "second")),
    Column("second_ms", "bigint", "start of the second"),
)
"""Columns as they come from the workers."""
_OUTPUT_DDL = ", ".join(f"{column.name} {column.type}" for column in DECIDED)


def to_decisions(
    governed: DataFrame, config: RateConfig, mutation_config: RateConfig, judge_lateness: str
) -> DataFrame:
    """Rows of `decisions`, one a second of a bucket.

    Args:
        governed: stream of GOVERN's rows.
        config: sample ring of the rows whose `rate_config` is null.
        mutation_config: windows of the mutation quotas.
        judge_lateness: watermark delay; generous, because rows behind it vanish before the processor.
    """
    sent = governed.withWatermark("second", judge_lateness).transform(as_sent)
    judged = sent.groupBy("bucket").transformWithState(
        statefulProcessor=_BucketProcessor(Configs(config, mutation_config)),
        outputStructType=_OUTPUT_DDL,
        outputMode="Append",
        timeMode="EventTime",
    )
    return judged.transform(as_decisions)


def as_decisions(decided: DataFrame) -> DataFrame:
    """Rows of `decisions` from rows of `DECIDED`."""
    second = F.timestamp_millis("second_ms")
    return decided.withColumns({"second": second, "event_date": F.to_date(second)}).select(*DECISIONS.names)


class _BucketProcessor(StatefulProcessor):
    """Keeps one `BucketJudge` per key; a bucket idle for longer than its ring remembers is forgotten.

    One timer per key: when it fires early, because the bucket was used again, it is set anew. Time to live
    by processing time is not used: it would wipe live state after a stop of the job.
    """

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        # Points come and go by the thousand and hold no cycles: the collector need not look so often.
        gc.set_threshold(50_000, 20, 20)
        self._state = handle.getValueState("replay", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        stored = self._state.get()
        judge = BucketJudge(
            quota_type_of(key[0]), self._configs, None if stored is None else bytes(stored[0])
        )
        sent = [received(row.sent) for row in rows]
        judged = judge.judge(sent)
        self._state.update((judge.state,))
        if stored is None:
            self._handle.registerTimer(judge.forget_at_ms)
        for one in judged:
            yield Row(**decision_values(key[0], one, sent[0].known_through_ms))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        stored = self._state.get()
        if stored is not None:
            forget_at_ms = BucketJudge(quota_type_of(key[0]), self._configs, bytes(stored[0])).forget_at_ms
            if forget_at_ms > expiredTimerInfo.getExpiryTimeInMs():
                self._handle.registerTimer(forget_at_ms)
            else:
                self._state.clear()
        return iter(())

    def close(self) -> None:
        pass


def decision_values(bucket: str, judged: Judged, known_through_ms: int | None) -> dict[str, Any]:
    """The columns of `DECIDED`."""
    decision = judged.decision
    is_behind = known_through_ms is None or known_through_ms < decision.second_ms + 1_000
    cluster_id, broker_id, *names = msgspec.json.decode(bucket)
    values: dict[str, Any] = dict(zip_longest(KEYS, (cluster_id, int(broker_id), *names)))
    values.update({name: getattr(decision, name) for name in FROM_DECISION})
    values.update({name: getattr(decision.agreement, source) for name, source in FROM_AGREEMENT.items()})
    values["is_rules_behind"] = is_behind
    values["is_certain"] = decision.is_certain and not is_behind
    values["model_variant"] = judged.model_variant
    values["source"] = "log"
    values["second_ms"] = decision.second_ms
    return values
