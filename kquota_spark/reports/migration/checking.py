"""Checks a migration or an upgrade: both sides resolved for all clients, and the same traffic replayed under both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kquota_spark.config.governor import rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.compare.quota_diff import one_spelling
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.quotas.sources import QuotaHistory, from_tables
from kquota_spark.reports.clients.stored_usage import stored_rings
from kquota_spark.reports.migration.callbacks import differences_by_callback
from kquota_spark.reports.migration.leftovers import leftover_names
from kquota_spark.reports.migration.reasons import migration_reasons
from kquota_spark.reports.review.affected import (
    Compared,
    affected,
    by_harm,
    compared_books,
    compared_sets,
    effects_of_brokers,
)
from kquota_spark.reports.review.gathering import Asked, Traffic, found_between, traffic_of
from kquota_spark.reports.review.review import Affected, Reason, Review, Side


@dataclass(frozen=True, slots=True)
class Sides:
    """The quotas before and after, and the brokers after.

    `history` holds for both sides if the quotas are those of the tables. Each request is then judged under the quotas
    in force at its time.
    """

    before: Image
    after: Image
    brokers: TriedBrokers
    history: QuotaHistory | None = None


def history_sides(settings: Settings, brokers: TriedBrokers) -> Sides:
    """The quotas of the tables on both sides, for other brokers.

    Raises:
        UserError: there is no such table, or it has no rows of the cluster.
    """
    history = from_tables(settings)
    image = Image(history.origin, {})
    return Sides(image, image, brokers, history)


def check(settings: Settings, sides: Sides, asked: Asked, harmless_ms: int) -> Review:
    """The review of a migration or an upgrade.

    Args:
        settings: where the tables are.
        sides: what to compare.
        asked: period and budget.
        harmless_ms: increase of the total delay that needs no person.

    Raises:
        UserError: a table cannot be read.
    """
    traffic = traffic_of(settings, asked)
    mine = settings.changed(cluster_id=traffic.cluster_id)
    if sides.history is not None:
        stored = traffic.stored or {}
        sides = replace(
            sides, before=replace(sides.before, quotas=stored), after=replace(sides.after, quotas=stored)
        )
    before, after = one_spelling(sides.before.quotas), one_spelling(sides.after.quotas)
    compared = _compared(mine, sides)
    found = found_between(mine, (before, after), compared, traffic, asked.budget_ms)
    mangled = [*found.mangled, *leftover_names(after, traffic.seen, found.mangled)]
    mangled_entities = {one.stands for one in mangled}
    rings = _rings(mine, traffic)
    found = replace(
        found,
        affected=sorted([*found.affected, *_by_brokers(mine, sides, compared, traffic, found)], key=by_harm),
        mangled=mangled,
        names=[one for one in found.names if one.entity not in mangled_entities],
        not_judged=[*found.not_judged, *_notes(mine, sides, traffic)],
        sides=(_side(sides.before, rings), _side(sides.after, [sides.brokers.ring(ring) for ring in rings])),
    )
    reasons = [*migration_reasons(found, harmless_ms), *_reasons_of_sides(sides, traffic)]
    return replace(found, reasons=tuple(sorted(reasons, key=lambda reason: not reason.is_harm)))


def _compared(settings: Settings, sides: Sides) -> Compared:
    if sides.history is not None:
        return compared_books(settings, sides.history.book, sides.history.book, sides.brokers)
    before, after = one_spelling(sides.before.quotas), one_spelling(sides.after.quotas)
    return compared_sets(settings, before, after, sides.brokers)


def _rings(settings: Settings, traffic: Traffic) -> list[RateConfig]:
    """The distinct sample rings of the recorded brokers; none without traffic."""
    if traffic.period is None:
        return []
    found = set(stored_rings(settings).values()) or {rate_config(settings)}
    return sorted(found, key=lambda ring: ring.name)


def _by_brokers(
    settings: Settings, sides: Sides, compared: Compared, traffic: Traffic, known: Review
) -> list[Affected]:
    """What the brokers after change for clients under equal rules.

    Args:
        settings: where the tables are.
        sides: what to compare.
        compared: the same over time.
        traffic: the recorded clients.
        known: what the rules change.
    """
    if traffic.period is None or not sides.brokers.is_any:
        return []
    period = traffic.period.from_ms, traffic.period.to_ms
    if settings.quotas.callback:
        history = sides.history
        if history is None:
            return []
        return differences_by_callback(settings, history.book, history.leaders, sides.brokers, period)
    others = {(one.quota_type, client) for one in known.affected for client in one.clients}
    seen = [one for one in traffic.seen if (one.quota_type.value, (one.user, one.client_id)) not in others]
    changes = [*effects_of_brokers(compared, seen, period)]
    return [one for one in affected(settings, compared, changes, traffic.seen, period) if _has_effect(one)]


def _has_effect(one: Affected) -> bool:
    replay = one.replay
    return replay is None or one.is_moved or bool(replay.more_ms or replay.only_before or replay.only_after)


def _side(image: Image, rings: Sequence[RateConfig]) -> Side:
    problems = tuple(f"{place}: {problem}" for place, problem in sorted(image.problems.items()))
    rules = sum(1 for values in image.quotas.values() if values)
    return Side(image.origin, rules, tuple(dict.fromkeys(ring.name for ring in rings)), problems)


def _notes(settings: Settings, sides: Sides, traffic: Traffic) -> Iterator[str]:
    """What the check does not know about the brokers after."""
    if not sides.brokers.is_any:
        return
    if any(one.quota_type is QuotaType.FETCH and one.throttled_ms for one in traffic.seen):
        yield (
            "The size of a throttled fetch is not in the log. It counts with its recorded throttle before and after."
        )
    if not settings.quotas.callback or traffic.period is None:
        return
    if sides.history is None:
        yield "Other brokers under a quota callback are judged by the quotas of the tables only: leave the sides out."
    elif not sides.history.leaders.at(traffic.period.to_ms).leaders:
        yield "The tables do not have the leaders of partitions, so the callback is asked without them."


def _reasons_of_sides(sides: Sides, traffic: Traffic) -> Iterator[Reason]:
    """The reasons that lie in the sources."""
    for image in (sides.before, sides.after):
        if image.is_stale and image.known_through_ms is not None:
            yield Reason(f"{image.origin} has edits only through {iso_time(image.known_through_ms)}")
    if traffic.period is None and sides.brokers.is_any:
        yield Reason("no recorded traffic shows the effect of other brokers")
