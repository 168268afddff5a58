"""Makes table rows from replayed log files without Spark, with the parser and model of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from kquota_spark.formats.request_log.clock import LogClock
from kquota_spark.model.measure.points import UNSIZED_KINDS
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import model_name
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed
from kquota_spark.replay.files import BucketKey, Replay
from kquota_spark.schema.decision_columns import FROM_AGREEMENT, FROM_DECISION

_DAY_MS = 86_400_000
_TIME_OF_LINE = slice(1, 24)
"""The characters of a line with its time: `2026-11-21 20:03:31,163`."""
_of_decision = attrgetter(*FROM_DECISION)
_of_agreement = attrgetter(*FROM_AGREEMENT.values())


def request_rows(
    cluster_id: str, broker_id: int, lines: Sequence[bytes], log_time_zone: str, shipped_after_ms: int
) -> pa.RecordBatch:
    """Rows of `requests`, as if a shipper had sent the lines of one broker to a topic `log`, in order.

    Args:
        cluster_id: the cluster in the rows.
        broker_id: the broker, and the partition of the topic.
        lines: of the request log, each with its time.
        log_time_zone: name of the time zone of these times.
        shipped_after_ms: time from a line's own time to its Kafka timestamp, ms.
    """
    clock, count = LogClock(log_time_zone), len(lines)
    shipped_ms = pa.array(
        [clock.epoch_ms(line[_TIME_OF_LINE]) + shipped_after_ms for line in lines], pa.int64()
    )
    messages = pa.RecordBatch.from_pydict(
        {
            "topic": ["log"] * count,
            "partition": pa.array([broker_id] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp_ms": shipped_ms,
            "written_by_ms": shipped_ms,
            "value": pa.array(lines, pa.binary()),
            "broker": pa.array([str(broker_id).encode()] * count, pa.binary()),
        }
    )
    return parsed(messages, MessageReader(IngestSettings(cluster_id, log_time_zone, 60_000, 30_000, 4_096)))


def usage_rows(cluster_id: str, found: Replay) -> Iterator[dict[str, Any]]:
    """Rows of `usage`: one per client and second; times in epoch ms."""
    for key, of_bucket in found.governed_seconds.items():
        for second in of_bucket:
            points = second.points
            amount = sum(point.amount for point in points)
            yield {
                "cluster_id": cluster_id,
                "broker_id": key.broker_id,
                "quota_type": key.quota_type.value,
                "principal_type": "User",
                "user": second.user,
                "client_id": second.client_id,
                **_time(second.second_ms),
                "tile": 0,
                "amount": amount,
                "requests": len(points),
                "rate_per_s": float(amount),
                "duplicates": 0,
                "points": [point._asdict() for point in points],
                "source": "log",
                "observed_throttle_ms": sum(point.observed_throttle_ms for point in points),
                "unsized_requests": sum(point.kind in UNSIZED_KINDS for point in points),
            }


def decision_rows(
    cluster_id: str, found: Replay, model_variant: str, mutation_config: RateConfig | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of `decisions`: one per bucket and second; times in epoch ms.

    Args:
        cluster_id: the cluster in the rows.
        found: a replay with quotas known for its whole time.
        model_variant: name of the windows of the replay, `RateConfig.name`.
        mutation_config: windows of mutation quotas; None for Kafka's defaults.
    """
    of_mutations = model_name(QuotaType.CONTROLLER_MUTATION, mutation_config or RateConfig())
    for key, of_bucket in found.decisions.items():
        for decision in of_bucket:
            yield {
                "cluster_id": cluster_id,
                **_bucket(key),
                **_time(decision.second_ms),
                **dict(zip(FROM_DECISION, _of_decision(decision), strict=True)),
                **dict(zip(FROM_AGREEMENT, _of_agreement(decision.agreement), strict=True)),
                "is_rules_behind": False,
                "is_certain": decision.is_certain,
                "model_variant": of_mutations
                if key.quota_type is QuotaType.CONTROLLER_MUTATION
                else model_variant,
                "source": "log",
            }


def _bucket(key: BucketKey) -> dict[str, Any]:
    return {
        "broker_id": key.broker_id,
        "quota_type": key.quota_type.value,
        "bucket_user": key.bucket.user,
        "bucket_client_id": key.bucket.client_id,
    }


def _time(second_ms: int) -> dict[str, Any]:
    return {"second": second_ms, "event_date": second_ms // _DAY_MS}
