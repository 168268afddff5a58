"""Clients that a change gives another limit, bucket or ring, in groups that share buckets, with a replay of each group.

A group has all buckets that its clients use before or after. So a delay that moves from one bucket to another is
counted once.

A review of two files decides by the closed loop. For other brokers the open loop decides, because there the verdicts on
each request can be compared. The closed loop is beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kquota_spark.config.governor import rate_config, static_defaults
from kquota_spark.config.settings import Settings
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.compare.quota_diff import EffectChange, Governs, Identity
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.loops.tried import Closed
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import BEGINNING_MS, RuleBook, RulePeriod
from kquota_spark.reports.clients.stored_usage import stored_rings
from kquota_spark.reports.clients.what_if import WARM_UP_MS, Difference, WhatIf, what_if
from kquota_spark.reports.review.review import Affected, Replayed, Waiting
from kquota_spark.reports.review.screen import Member, hot_hours, spans
from kquota_spark.store.reading import Tables

MOST_REQUESTS = 400_000
"""Maximum requests of one replay. Further clients stay without a figure, and the review names them."""
MOST_LINKED = 1_000_000
"""Maximum requests that a replay reads, with those of other clients that share a bucket with the affected ones."""
AFTER_MS = 600_000
"""Usage (ms) that is read after an hour with throttles: requests that they delay come among those."""
_BY_CALLBACK = "a quota callback of the brokers decides, which the files do not describe"
_TOO_MANY = "too many requests for one replay"
_OTHER_TYPE = "quotas of this type are not replayed"
_Key = tuple[QuotaType, Bucket]


class Compared(NamedTuple):
    """The quotas before and after, over time, and the brokers after."""

    before: RuleGovernor
    after: RuleGovernor
    brokers: TriedBrokers | None = None
    """None for a review of two files, which decides by the closed loop."""


def compared_sets(
    settings: Settings, before: QuotaSet, after: QuotaSet, brokers: TriedBrokers | None = None
) -> Compared:
    """Two sets of quotas, each as if it had always been in force.

    Args:
        settings: of the recorded brokers.
        before: quotas before the change.
        after: quotas after it.
        brokers: those after the change; None for the closed loop.
    """
    return compared_books(settings, _book(before), _book(after), brokers)


def compared_books(
    settings: Settings, before: RuleBook, after: RuleBook, brokers: TriedBrokers | None
) -> Compared:
    """Two records of quotas over time.

    Args:
        settings: of the recorded brokers.
        before: quotas before the change.
        after: quotas after it.
        brokers: those after the change; None for the closed loop.
    """
    defaults = static_defaults(settings)
    of_after = defaults if brokers is None or brokers.has_static_defaults else {}
    return Compared(RuleGovernor(before, defaults), RuleGovernor(after, of_after), brokers)


@dataclass(slots=True)
class _Group:
    """Buckets before and after that share clients, and the changes of these clients."""

    changes: list[EffectChange] = field(default_factory=list)
    was: set[_Key] = field(default_factory=set)
    now: set[_Key] = field(default_factory=set)

    def shown(self) -> Affected:
        first = self.changes[0]
        buckets = {key[1] for key in self.now} or {key[1] for key in self.was}
        return Affected(
            first.quota_type,
            tuple(sorted(buckets, key=lambda bucket: (bucket.user, bucket.client_id))),
            tuple(sorted({(one.identity.user or "", one.identity.client_id or "") for one in self.changes})),
            tuple(dict.fromkeys((one.before.limit, one.after.limit) for one in self.changes)),
            any(
                one.is_other_bucket and None not in (one.before.bucket, one.after.bucket)
                for one in self.changes
            ),
            tuple(dict.fromkeys(str(one.after.rule) for one in self.changes)),
            sum(one.amount for one in self.changes),
        )


def affected(
    settings: Settings,
    compared: Compared,
    changes: Iterable[EffectChange],
    seen: Sequence[Seen],
    period: tuple[int, int],
) -> list[Affected]:
    """The groups of clients with another limit or bucket, those with the largest increase of delay first.

    Args:
        settings: where the tables are, and the cluster.
        compared: before and after the change.
        changes: of clients that were seen.
        seen: all clients of the period.
        period: first second and end, epoch ms.

    Raises:
        UserError: a table cannot be read.
    """
    groups = list(_groups(changes))
    found = [group.shown() for group in groups]
    if settings.quotas.callback:
        return sorted((replace(one, why=_BY_CALLBACK) for one in found), key=by_harm)
    replayed = _replayed_groups(settings, compared, groups, seen, period)
    return sorted((_with_replay(one, replayed, number) for number, one in enumerate(found)), key=by_harm)


def _with_replay(one: Affected, replayed: Mapping[int, Replayed | None], number: int) -> Affected:
    replay = replayed.get(number)
    if replay is None:
        return replace(one, why=_TOO_MANY if number in replayed else _OTHER_TYPE)
    # In the open loop the requests of throttled clients pile up, so the sum is an upper bound.
    is_more = replay.delay_after_ms > replay.delay_before_ms
    is_at_most = is_more and (one.is_lower or not one.is_moved)
    return replace(one, replay=replace(replay, is_at_most=is_at_most))


def by_harm(one: Affected) -> tuple[object, ...]:
    """The order of groups: those with more delay first, then those that were not judged."""
    more_ms = deferred = 0
    if one.replay is not None:
        more_ms, deferred = one.replay.more_ms, one.replay.deferred
    rank = 0 if more_ms > 0 or deferred else 1 if one.replay is None and not one.is_harmless else 2
    return rank, -abs(more_ms), -deferred, not one.is_lower, -one.amount, one.quota_type, one.clients


def _groups(changes: Iterable[EffectChange]) -> Iterator[_Group]:
    """The changes, joined where they have a bucket in common."""
    group_of: dict[_Key, _Group] = {}
    for change in changes:
        quota_type = QuotaType(change.quota_type)
        keys = [
            [] if governs.bucket is None else [(quota_type, governs.bucket)]
            for governs in (change.before, change.after)
        ]
        own = _Group([change], set(keys[0]), set(keys[1]))
        for other in {
            id(group_of[key]): group_of[key] for key in own.was | own.now if key in group_of
        }.values():
            own.changes[:0] = other.changes
            own.was |= other.was
            own.now |= other.now
        for key in own.was | own.now:
            group_of[key] = own
    yield from {id(group): group for group in group_of.values()}.values()


def _replayed_groups(
    settings: Settings,
    compared: Compared,
    groups: Sequence[_Group],
    seen: Sequence[Seen],
    period: tuple[int, int],
) -> dict[int, Replayed | None]:
    """The replay of each bandwidth group by its number; None for groups with too many requests.

    Groups that no limit could throttle need no replay: all their figures are 0.
    """
    numbers = {
        key: number
        for number, group in enumerate(groups)
        for key in group.was | group.now
        if key[0] in BANDWIDTH
    }
    nothing = Replayed() if compared.brokers is None else Replayed(closed=None, beside=Waiting())
    found: dict[int, Replayed | None] = dict.fromkeys(numbers.values(), nothing)
    hours = _hot_hours_of_groups(settings, compared, numbers, seen, period)
    left, wanted = MOST_REQUESTS, dict[_Key, list[tuple[int, int]]]()
    for number in sorted(hours, key=lambda number: (sum(hours[number].values()), number)):
        left -= sum(hours[number].values())
        if left < 0:
            found[number] = None
            continue
        for key in groups[number].was | groups[number].now:
            wanted[key] = spans(hours[number], WARM_UP_MS, AFTER_MS)
    if wanted:
        replay = _replay(settings, compared, wanted, period)
        for each in replay.differences:
            number_of = numbers.get((each.quota_type, each.bucket))
            so_far = None if number_of is None else found[number_of]
            if number_of is not None and so_far is not None:
                found[number_of] = _sum(so_far, each)
        for key in replay.left_out & numbers.keys():
            found[numbers[key]] = None
    return found


def _hot_hours_of_groups(
    settings: Settings,
    compared: Compared,
    numbers: Mapping[_Key, int],
    seen: Sequence[Seen],
    period: tuple[int, int],
) -> dict[int, dict[int, int]]:
    """Per group, the hours in which one of its buckets could be throttled, before or after."""
    keys = {(side, key): place for place, (side, key) in enumerate((s, k) for s in (0, 1) for k in numbers)}
    members: dict[tuple[Seen, int], Member] = {}
    for one in seen:
        if one.quota_type not in BANDWIDTH:
            continue
        for side, governor in enumerate(compared[:2]):
            for governs in governing(governor, one, period):
                if governs.bucket is None or governs.limit is None:
                    continue
                place = keys.get((side, (one.quota_type, governs.bucket)))
                if place is None:
                    continue
                member = Member(one.quota_type, one.user, one.client_id, place, governs.limit)
                # The lowest of several limits throttles first.
                members[one, place] = min(member, members.get((one, place), member))
    past = [rate_config(settings), *stored_rings(settings).values()]
    rings = past if compared.brokers is None else [*past, *map(compared.brokers.ring, past)]
    with Tables(settings) as tables:
        tables.open("usage", period[0])
        hot = hot_hours(tables, settings.cluster_id, [*members.values()], rings, period)
    found: dict[int, dict[int, int]] = {}
    for (_, key), place in keys.items():
        for hour, requests in hot.get(place, {}).items():
            of_group = found.setdefault(numbers[key], {})
            of_group[hour] = max(of_group.get(hour, 0), requests)
    return found


def _replay(
    settings: Settings,
    compared: Compared,
    wanted: Mapping[_Key, Sequence[tuple[int, int]]],
    period: tuple[int, int],
) -> WhatIf:
    """The recorded requests of these buckets, judged before and after: the only call of the replay."""
    before, after, brokers = compared
    return what_if(
        settings, before, after, *period, wanted=wanted, most_requests=MOST_LINKED, brokers=brokers
    )


def governing(governor: RuleGovernor, one: Seen, period: tuple[int, int]) -> Iterator[Governs]:
    """The limits of a client in a period, each with its rule and bucket, oldest first; the same one may come again."""
    time_ms, to_ms = period
    while time_ms < to_ms:
        governed, found = governor.explain(one.quota_type, one.user, one.client_id, time_ms)
        yield Governs(found.limit, found.entity, None if found.limit is None else found.bucket)
        time_ms = to_ms if governed.governing.valid_to_ms is None else governed.governing.valid_to_ms


def effects_of_brokers(
    compared: Compared, seen: Iterable[Seen], period: tuple[int, int]
) -> Iterator[EffectChange]:
    """The limits of all clients before and after, also equal ones: another ring may change verdicts under them.

    Controller mutations have no ring. What a client used counts once, for its last limit in the period.

    Args:
        compared: with the same rules on both sides, for the clients of `seen`.
        seen: clients of the period.
        period: first second and end, epoch ms.
    """
    for one in seen:
        if one.quota_type is QuotaType.CONTROLLER_MUTATION:
            continue
        sides = ([*governing(governor, one, period)] for governor in compared[:2])
        found = [
            pair for pair in zip(*sides, strict=True) if any(governs.limit is not None for governs in pair)
        ]
        for place, pair in enumerate(dict.fromkeys(reversed(found))):
            identity = Identity(one.user, one.client_id)
            amount, throttled_ms = (0, 0) if place else (one.amount, one.throttled_ms)
            yield EffectChange(identity, one.quota_type.value, pair[0], pair[1], True, amount, throttled_ms)


def _book(quotas: QuotaSet) -> RuleBook:
    """The quotas as if they had always been in force."""
    return RuleBook(
        RulePeriod(entity, values, BEGINNING_MS, None, None)
        for entity, values in quotas.items()
        if isinstance(entity, Entity)
    )


def _sum(so_far: Replayed, each: Difference) -> Replayed:
    before, after = each.before, each.after
    return replace(
        so_far,
        throttled_before=so_far.throttled_before + (0 if before is None else before.throttled_requests),
        throttled_after=so_far.throttled_after + (0 if after is None else after.throttled_requests),
        delay_before_ms=so_far.delay_before_ms + each.throttled_ms[0],
        delay_after_ms=so_far.delay_after_ms + each.throttled_ms[1],
        unknown=so_far.unknown + (0 if after is None else after.unknown),
        only_before=so_far.only_before + each.flips.only_before,
        only_after=so_far.only_after + each.flips.only_after,
        closed=so_far.closed and so_far.closed.plus(waiting(each.closed)),
        beside=so_far.beside and so_far.beside.plus(waiting(each.closed)),
    )


def waiting(closed: Closed | None) -> Waiting:
    """The figures of a bucket in the closed loop; nothing without such a bucket."""
    if closed is None:
        return Waiting()
    return Waiting(
        closed.throttled_requests, closed.throttled_ms, closed.delay.low, closed.delay.high, closed.deferred,
        closed.is_censored,
    )  # fmt: skip
