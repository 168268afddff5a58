"""A review as one value for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.compare.quota_diff import EffectChange
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.review.review import Affected, Review, Side
from kquota_spark.reports.review.wording import REVIEW, Wording

_CLOSED = {
    "throttled_requests_after_closed": "throttled_requests",
    "delay_ms_after_closed": "delay_ms",
    "delay_ms_after_closed_low": "low_ms",
    "delay_ms_after_closed_high": "high_ms",
    "deferred_bytes": "deferred",
    "is_censored": "is_censored",
}
"""Columns of a group in the closed loop, which decides a review; those without the ending are of the open loop."""


def answer_of(found: Review | None, code: int, wording: Wording = REVIEW) -> dict[str, Any]:
    """Everything, for programs: times in ISO 8601, delays in ms, limits per second and broker.

    Args:
        found: None if there is no change.
        code: exit code of the command, which is the verdict.
        wording: the texts of the command.
    """
    if found is None:
        return {"verdict": wording.verdicts[code], "is_changed": False}
    period = found.period
    return {
        "verdict": wording.verdicts[code],
        "is_changed": bool(found.edits or found.affected or found.possible),
        "from": None if period is None else iso_time(period.from_ms),
        "to": None if period is None else iso_time(period.to_ms),
        "clients": None if period is None else period.clients,
        "budget_delay_ms": found.budget_ms,
        "reasons": [{"text": one.text, "is_harm": one.is_harm} for one in found.reasons],
        "edits": [
            {"entity": str(one.entity), "key": one.key.value, "before": one.before, "after": one.after}
            for one in found.edits
        ],
        "affected": [dict(_group(one, wording)) for one in found.affected],
        "possible": [_possible(one) for one in found.possible],
        "oversubscription": [
            {"key": one.key.value, "sum_before_per_s": one.before, "sum_after_per_s": one.after,
             "capacity_per_s": one.capacity, "unlimited_before": one.unlimited_before,
             "unlimited_after": one.unlimited_after}
            for one in found.capacity
        ],
        "mangled": [
            {"meant": str(one.meant), "stands": str(one.stands), "why": one.why} for one in found.mangled
        ],
        "names": [{"entity": str(one.entity), "why": one.why} for one in found.names],
        "not_judged": [*found.not_judged],
        **({} if found.sides is None else dict(zip(("before", "after"), map(_side, found.sides), strict=True))),
    }  # fmt: skip


def _side(one: Side) -> dict[str, Any]:
    return {"quotas": one.origin, "rules": one.rules, "rings": [*one.rings], "problems": [*one.problems]}


def _group(one: Affected, wording: Wording) -> Iterator[tuple[str, Any]]:
    yield "quota_type", one.quota_type
    yield "buckets", [_bucket(each) for each in one.buckets]
    yield "clients", [{"user": user, "client_id": client_id} for user, client_id in one.clients]
    yield "limits", [{"before_per_s": before, "after_per_s": after} for before, after in one.limits]
    yield "rules_after", [*one.rules_after]
    yield "is_shared_anew", one.is_shared_anew
    yield "amount", one.amount
    replay = one.replay
    for name, side in (("throttled_requests", "throttled"), ("delay_ms", "delay")):
        for when in ("before", "after"):
            key = f"{side}_{when}" if side == "throttled" else f"{side}_{when}_ms"
            yield f"{name}_{when}", None if replay is None else getattr(replay, key)
    yield "unknown_requests", None if replay is None else replay.unknown
    if wording.is_open_loop:
        yield "requests_throttled_only_before", None if replay is None else replay.only_before
        yield "requests_throttled_only_after", None if replay is None else replay.only_after
    closed = None if replay is None else replay.closed or replay.beside
    for name, key in _CLOSED.items():
        yield name, None if closed is None else getattr(closed, key)
    yield "is_delay_after_at_most", None if replay is None else replay.is_at_most
    yield "why_not_replayed", one.why or None


def _bucket(one: Bucket) -> dict[str, Any]:
    names: dict[str, Any] = {"user": one.user, "client_id": one.client_id}
    return names | {"tags": dict(one.custom_tags)} if one.custom_tags else names


def _possible(one: EffectChange) -> dict[str, Any]:
    return {
        "quota_type": one.quota_type,
        **one.identity._asdict(),
        "before_per_s": one.before.limit,
        "after_per_s": one.after.limit,
        "rule_after": None if one.after.rule is None else str(one.after.rule),
    }
