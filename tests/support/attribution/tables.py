"""The tables that an audit would have of a simulated cluster."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import Entity
from tests.support.attribution.simulated import FROM_MS, TO_MS, Recording, Sent
from tests.support.reports.gathered_report import Row, rule
from tests.support.tables.table_rows import T0_MS, decision, usage, violation, write_table

_RING = "3.8+/11x1000ms"


def write_recording(root: Path, recording: Recording, entity: Entity) -> None:
    """Write `usage`, `quota_rules`, `decisions` and `violations`.

    Args:
        root: of the tables.
        recording: what was sent.
        entity: whose quota it is: a user, or a client id.
    """
    write_table(root, "usage", *_usage(recording))
    limits = recording.limits
    ends = [_offset_s(each.from_ms) for each in limits[1:]] + [None]
    rows = [
        rule(
            entity, since_s=_offset_s(each.from_ms) if each.from_ms else -10 * 86_400, until_s=end,
            producer_byte_rate=each.limit_per_s or 0.0,
        )
        for each, end in zip(limits, ends, strict=True)
    ]  # fmt: skip
    write_table(root, "quota_rules", *rows)
    own: Row = {
        "bucket_user": entity.user or "",
        "bucket_client_id": entity.client_id or "",
        "rule": str(entity),
    }
    throttled = [each for each in recording.records if FROM_MS <= each.time_ms < TO_MS and each.throttle_ms]
    decisions = [
        decision(
            _offset_s(each.time_ms), **own, broker_id=each.broker_id, throttle_ms=each.throttle_ms,
            total_throttle_ms=each.throttle_ms, observed_throttle_ms=each.throttle_ms, throttled_requests=1,
            observed_throttled_requests=1, observed_total_throttle_ms=each.throttle_ms, model_variant=_RING,
            quota_used_percent=110.0, users=[each.client[0]], client_ids=[each.client[1]],
        )
        for each in throttled
    ]  # fmt: skip
    write_table(root, "decisions", *decisions)
    delay_ms = sum(each.throttle_ms for each in throttled)
    first_s, last_s = _offset_s(FROM_MS), _offset_s(TO_MS)
    write_table(
        root, "violations", violation(first_s, last_s - first_s, **own, observed_throttled_ms=delay_ms)
    )


def _usage(recording: Recording) -> list[Row]:
    """One row per broker, client and second."""
    seconds: dict[tuple[int, tuple[str, str], int], list[tuple[int, Sent]]] = defaultdict(list)
    for order, each in enumerate(recording.records):
        seconds[each.broker_id, each.client, each.time_ms // 1_000].append((order, each))
    found = []
    for (broker_id, (user, client_id), second_s), sent in seconds.items():
        points = [
            Point(
                each.time_ms, each.time_ms + 1, each.connection, order, each.amount, each.throttle_ms,
                int(PointKind.PRODUCE),
            )._asdict()
            for order, each in sent
        ]  # fmt: skip
        found.append(
            usage(
                second_s - T0_MS // 1_000, broker_id=broker_id, user=user, client_id=client_id, points=points,
                amount=sum(each.amount for _, each in sent), requests=len(sent),
                observed_throttle_ms=sum(each.throttle_ms for _, each in sent),
            )
        )  # fmt: skip
    idle = [broker_id for broker_id in recording.brokers if broker_id not in {each for each, _, _ in seconds}]
    return found + [
        usage(_offset_s(FROM_MS), broker_id=broker_id, user="other", points=[]) for broker_id in idle
    ]


def _offset_s(time_ms: int) -> int:
    return time_ms // 1_000 - T0_MS // 1_000


def iso(time_ms: int) -> str:
    """A time as options take it."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat()
