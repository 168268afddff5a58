"""Makes a review from two sets of quotas and the tables: of a laptop's exported copy as of a cluster's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.findings.idle_rules import mangled_names
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.compare.quota_diff import EffectChange, effect_changes, one_spelling, text_edits
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaType
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.quotas.stored import held_cluster, stored_image
from kquota_spark.reports.advice.headroom import raise_policy
from kquota_spark.reports.clients.seen_clients import clients_seen
from kquota_spark.reports.review.affected import Compared, affected, compared_sets
from kquota_spark.reports.review.capacity import oversubscription
from kquota_spark.reports.review.names import suspicious_names
from kquota_spark.reports.review.review import Oversubscription, Period, Review
from kquota_spark.reports.review.verdict import reasons_of
from kquota_spark.store.reading import Tables


class Asked(NamedTuple):
    """The reviewed period, and the increase of the delay that is no harm yet."""

    from_ms: int | None
    """First second, epoch ms; None counts `length_ms` back from the newest second of the tables."""
    length_ms: int
    budget_ms: int


class Traffic(NamedTuple):
    """The recorded clients of a period; without a period, there is no traffic."""

    cluster_id: str
    seen: Sequence[Seen]
    period: Period | None
    stored: QuotaSet | None
    """The quotas of the tables at the end of the period."""
    why: str
    """Why there is no traffic, or no replay of it."""


def review(settings: Settings, before: QuotaSet, after: QuotaSet, asked: Asked) -> Review | None:
    """The review of a change; None if both sets are equal, so that there is nothing to review.

    Args:
        settings: where the tables and the policies are.
        before: quotas before the change.
        after: quotas after it.
        asked: period and budget.

    Raises:
        UserError: a table cannot be read.
    """
    before, after = one_spelling(before), one_spelling(after)
    if not text_edits(before, after):
        return None
    traffic = traffic_of(settings, asked)
    compared = compared_sets(settings, before, after)
    found = found_between(settings, (before, after), compared, traffic, asked.budget_ms)
    found = replace(
        found,
        capacity=_capacity(settings, before, after, traffic.seen),
        not_judged=[*found.not_judged, *_of_capacity(settings)],
    )
    return replace(found, reasons=reasons_of(found))


def found_between(
    settings: Settings,
    sides: tuple[QuotaSet, QuotaSet],
    compared: Compared,
    traffic: Traffic,
    budget_ms: int,
) -> Review:
    """What differs between two sides, without the sums of limits and the reasons.

    Args:
        settings: where the tables are.
        sides: the quotas before and after, each address in the spelling that brokers compare.
        compared: the same over time, for the replay.
        traffic: the recorded clients.
        budget_ms: increase of the total delay that is no harm yet.

    Raises:
        UserError: a table cannot be read.
    """
    before, after = sides
    changes = effect_changes(before, after, traffic.seen)
    possible = [one for one in changes if not one.is_seen]
    period = traffic.period
    groups = (
        ()
        if period is None
        else affected(
            settings.changed(cluster_id=traffic.cluster_id),
            compared,
            [one for one in changes if one.is_seen],
            traffic.seen,
            (period.from_ms, period.to_ms),
        )
    )
    return Review(
        text_edits(before, after),
        groups,
        possible,
        period,
        (),
        list(mangled_names(before, after)),
        suspicious_names(before, after, [(one.user, one.client_id) for one in traffic.seen]),
        _not_judged(settings, traffic, before, possible),
        budget_ms,
    )


def traffic_of(settings: Settings, asked: Asked) -> Traffic:
    """The recorded clients of the period.

    Raises:
        UserError: a table cannot be read.
    """
    nothing = Traffic(settings.cluster_id, (), None, None, "")
    with Tables(settings) as tables:
        for name in ("usage", "decisions"):
            if tables.location(name) is None:
                return nothing._replace(why=f"there is no table {name}, so no recorded traffic")
        tables.open("usage", asked.from_ms)
        newest_ms = tables.newest_ms("usage")
        if newest_ms is None:
            return nothing._replace(why="the table usage is empty")
        to_ms = newest_ms + 1_000
        from_ms = to_ms - asked.length_ms if asked.from_ms is None else asked.from_ms
        cluster_id = held_cluster(tables, settings)
        found = clients_seen(tables, cluster_id, from_ms, tuple(QuotaType))
        if not found:
            return nothing._replace(why="the tables have no traffic of the settings' cluster in the period")
        stored = None
        if tables.location("quota_rules") is not None:
            mine = settings.changed(cluster_id=cluster_id)
            stored = stored_image(tables, mine, min(to_ms, END_MS)).quotas
    seen = [one.seen for one in found]
    first_ms = max(from_ms, min(one.first_ms for one in found))
    period = Period(first_ms, to_ms, len({(one.user, one.client_id) for one in seen}))
    return Traffic(cluster_id, seen, period, stored, "")


def _capacity(
    settings: Settings, before: QuotaSet, after: QuotaSet, seen: Sequence[Seen]
) -> list[Oversubscription]:
    policy = raise_policy(Path(settings.enforcement.policy_file))
    return [] if policy is None else oversubscription(before, after, seen, policy.broker_capacity_per_s)


def _of_capacity(settings: Settings) -> list[str]:
    if raise_policy(Path(settings.enforcement.policy_file)) is None:
        return ["No policy file states the capacity of a broker, so oversubscription is not known."]
    return []


def _not_judged(
    settings: Settings, traffic: Traffic, before: QuotaSet, possible: Sequence[EffectChange]
) -> list[str]:
    """What the review does not know."""
    found = []
    if traffic.why:
        found.append(f"{traffic.why[0].upper()}{traffic.why[1:]}.")
    if traffic.stored is not None and text_edits(traffic.stored, before):
        found.append(
            "The quotas before are not those in force at the end of the period. The replay judges the traffic under "
            "them."
        )
    if any(one.quota_type == CONNECTION for one in possible):
        found.append("The request log does not show connections that a limit per ip refuses.")
    if settings.quotas.callback:
        found.append("The brokers have a quota callback, which may answer otherwise than these rules.")
    return found
