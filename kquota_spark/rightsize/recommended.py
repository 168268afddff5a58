"""The right size of each bucket on its worst broker, and the quality of defaults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kquota_spark.enforce.guard_settings import GuardSettings
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.rightsize.defaults import DefaultQuality, Need, grid, quality
from kquota_spark.model.rightsize.forecast import (
    Forecast,
    Trend,
    day_levels,
    days_to_near,
    growth_of,
    trend_of,
)
from kquota_spark.model.rightsize.target import LEAST_DAYS, MOST_DAYS, Bounds, RightSize, mean_age, right_size
from kquota_spark.rightsize.buckets import BucketKey, Buckets, Place
from kquota_spark.rightsize.kept_days import open_history
from kquota_spark.rightsize.windows import (
    Asked,
    BucketWindows,
    bucket_windows,
    buckets_alone,
    has_rows_until,
    newest_quotas,
)
from kquota_spark.store.dated_files import DAY_MS
from kquota_spark.store.reading import Tables

_ROUNDED_MS = 3_600_000
"""A day is whole without so much of it, ms: the first request of a client is not at midnight."""
_LEAST_HISTORY_MS = LEAST_DAYS * DAY_MS - _ROUNDED_MS
"""Shortest history with an answer, ms."""


class Recommendation(NamedTuple):
    """The right size of a bucket, by its broker with the highest target."""

    place: Place
    limit_per_s: float | None
    rule: str | None
    history_days: float
    size: RightSize | None
    """None if the history is too short."""
    trend: Trend | None
    forecast: Forecast | None

    @property
    def is_near(self) -> bool:
        """Whether the demand is above 80 % of the limit already."""
        return self.forecast is not None and self.forecast.days == 0


def recommendations(
    tables: Tables,
    cluster_id: str,
    to_ms: int,
    guards: GuardSettings | None = None,
    from_ms: int | None = None,
    buckets: Buckets = None,
    quotas_ms: int | None = None,
) -> list[Recommendation]:
    """The right size of each bucket, by quota type and name.

    Args:
        tables: the tables; `decisions`, `usage` and `demand_days` are opened here.
        cluster_id: the cluster.
        to_ms: end of the history, epoch ms.
        guards: its bounds cap the targets.
        from_ms: start of the history; None for four weeks before its end.
        buckets: only these; None for all. Few buckets take a small part of the time.
        quotas_ms: the limits are those until then, epoch ms; None for the end of the history.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    asked = Asked(cluster_id, max(from_ms or 0, to_ms - MOST_DAYS * DAY_MS), to_ms, buckets)
    later = {} if quotas_ms is None else newest_quotas(tables, Asked(cluster_id, to_ms, quotas_ms))
    has_kept = open_history(tables, asked)
    is_old = has_kept or has_history(tables, asked)
    worst: dict[BucketKey, Recommendation] = {}
    for found in bucket_windows(tables, asked, has_kept=has_kept) if is_old else buckets_alone(tables, asked):
        limit, rule = later.get(found.place, (found.limit_per_s, found.rule))
        one = _recommendation(found._replace(limit_per_s=limit, rule=rule), to_ms, guards)
        bucket = one.place.key
        if bucket not in worst or _needed(one) > _needed(worst[bucket]):
            worst[bucket] = one
    return sorted(worst.values(), key=lambda one: one.place[1:])


def has_history(tables: Tables, asked: Asked) -> bool:
    """Whether the tables have two weeks of any bucket: without them no bucket has a right size.

    Args:
        tables: with `decisions` opened from the start of the history on.
        asked: the cluster and the history.

    Raises:
        UserError: the table cannot be read.
    """
    return has_rows_until(tables, asked, asked.to_ms - _LEAST_HISTORY_MS)


def _needed(one: Recommendation) -> float:
    return -1.0 if one.size is None else one.size.uncapped


def _recommendation(found: BucketWindows, to_ms: int, guards: GuardSettings | None) -> Recommendation:
    history_days = (to_ms - found.first_ms) / DAY_MS
    days = (to_ms - found.first_ms + _ROUNDED_MS) // DAY_MS
    if days < LEAST_DAYS:
        return Recommendation(found.place, found.limit_per_s, found.rule, history_days, None, None, None)
    size = right_size(found.windows, days, bounds=_bounds(found.place, guards))
    trend = forecast = None
    if size is not None:
        trend = trend_of(day_levels(found.windows, days, size.left_out), days)
        present = size.quantile * growth_of(trend, mean_age(days, size.left_out))
        forecast = days_to_near(trend, present, found.limit_per_s)
    return Recommendation(found.place, found.limit_per_s, found.rule, history_days, size, trend, forecast)


def _bounds(place: Place, guards: GuardSettings | None) -> Bounds:
    bounds = None if guards is None else guards.bounds_of(QuotaType(place.quota_type).key)
    return Bounds() if bounds is None else Bounds(bounds.floor, bounds.ceiling)


class DefaultCandidate(NamedTuple):
    """A value of a default, and its effect."""

    entity: Entity
    quota_type: str
    present_per_s: float | None
    """The value in force; None if no bucket has it."""
    effect: DefaultQuality


def default_candidates(found: Iterable[Recommendation]) -> Iterator[DefaultCandidate]:
    """Values for each default on a grid, by type and entity.

    A default is judged by the buckets with the same tags: those without a rule of their own, and those with one.
    """
    groups: dict[tuple[str, Entity], list[Recommendation]] = defaultdict(list)
    for one in found:
        if one.size is not None:
            groups[one.place.quota_type, _default_of(one.place)].append(one)
    for (quota_type, entity), ones in sorted(
        groups.items(), key=lambda group: (group[0][0], str(group[0][1]))
    ):
        needs = [_need(one) for one in ones]
        limits = [
            one.limit_per_s for one in ones if not _is_override(one.rule) and one.limit_per_s is not None
        ]
        present = max(limits, default=None)
        for value in grid(needs, present):
            yield DefaultCandidate(entity, quota_type, present, quality(needs, value, present))


def _default_of(place: Place) -> Entity:
    return Entity(DEFAULT if place.user else None, DEFAULT if place.client_id or not place.user else None)


def _need(one: Recommendation) -> Need:
    assert one.size is not None
    return Need(one.size.uncapped, _is_override(one.rule))


def _is_override(rule: str | None) -> bool:
    """Whether a rule names all tags of its buckets, so that it is one bucket's own."""
    try:
        entity = Entity.parse(rule or "")
    except ValueError:  # none, or a callback's
        return False
    return DEFAULT not in (entity.user, entity.client_id)
