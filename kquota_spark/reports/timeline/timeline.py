"""One client over a period, on one broker and for one quota type: slots and events on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kquota_spark.model.quotas.quota_types import CONNECTION, IP_QUOTA_KEY, QuotaType
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import (
    Identity,
    Place,
    Slot,
    buckets_of,
    slot_ms,
    slots_of,
    used_at,
)
from kquota_spark.reports.timeline.events import Event
from kquota_spark.reports.timeline.timeline_events import events_of
from kquota_spark.reports.timeline.top_buckets import bucket_first_ms
from kquota_spark.store.reading import Tables


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is known of a client at one place.

    Attributes:
        who: the client.
        place: broker and quota type.
        keys: the buckets that it was in; empty where no quota governed it at any time.
        from_ms: start of the first slot, epoch ms.
        length_ms: length of a slot, ms.
        slots: all slots of the period.
        events: in the order of time.
        elsewhere: the other places where it was seen, with its total delay there in ms; the most throttled first.
        left_out: its other buckets at this place, if only a user or only a client id is requested.
    """

    who: Identity
    place: Place
    keys: Sequence[BucketKey]
    from_ms: int
    length_ms: int
    slots: Sequence[Slot]
    events: Sequence[Event]
    elsewhere: Sequence[tuple[Place, int]]
    left_out: Sequence[BucketKey]


def timeline(
    tables: Tables,
    who: Identity,
    period: Period,
    *,
    broker_id: int | None,
    quota_type: str | None,
    most_slots: int,
    is_clipped: bool,
) -> Timeline | None:
    """The timeline of a client at the requested place where it was throttled most; None if it was not seen there.

    Args:
        tables: with `decisions` and `usage` opened for the period.
        who: the client.
        period: the period.
        broker_id: None for any.
        quota_type: None for any.
        most_slots: maximum slots of the drawing.
        is_clipped: whether to begin at the client's first second.
    """
    found, used = buckets_of(tables, who, period), used_at(tables, who, period)
    throttled_ms = dict.fromkeys([*(one.place for one in found), *used], 0)
    for one in found:
        throttled_ms[one.place] += one.throttled_ms
    places = sorted(throttled_ms, key=lambda place: -throttled_ms[place])
    wanted = [p for p in places if broker_id in (None, p.broker_id) and quota_type in (None, p.quota_type)]
    if not wanted:
        return None
    place = wanted[0]
    here = [one for one in found if one.place == place]
    if is_clipped:
        firsts_ms = [one.first_ms for one in here] + ([used[place]] if place in used else [])
        period = Period(min(firsts_ms), period.to_ms)
    elsewhere = [(other, throttled_ms[other]) for other in places if other != place]
    return _drawn(tables, who, period, place, [one.key for one in here], elsewhere, most_slots)


def bucket_timeline(tables: Tables, key: BucketKey, period: Period, most_slots: int) -> Timeline:
    """The timeline of one bucket on one broker, from its first second in the period on.

    Args:
        tables: with `decisions` opened.
        key: the bucket and its broker.
        period: the period.
        most_slots: maximum slots of the drawing.
    """
    who = Identity(key.user or None, key.client_id or None, key.cluster_id)
    first_ms = bucket_first_ms(tables, key, period.from_ms)
    drawn = Period(period.from_ms if first_ms is None else first_ms, period.to_ms)
    place = Place(key.broker_id, key.quota_type)
    return _drawn(tables, who, drawn, place, [key], [], most_slots, has_usage=False)


def _drawn(
    tables: Tables,
    who: Identity,
    period: Period,
    place: Place,
    here: Sequence[BucketKey],
    elsewhere: Sequence[tuple[Place, int]],
    most_slots: int,
    *,
    has_usage: bool = True,
) -> Timeline:
    is_whole = who.user is not None and who.client_id is not None
    keys = here if is_whole else here[:1]
    # One slot less, because the first slot begins at a multiple of the slot length.
    length_ms = slot_ms(period, most_slots - 1)
    drawn = Period(period.from_ms // length_ms * length_ms, period.to_ms)
    slots = slots_of(tables, who, drawn, keys, place, length_ms, has_usage=has_usage)
    key = IP_QUOTA_KEY if place.quota_type == CONNECTION else QuotaType(place.quota_type).key.value
    rules = {slot.rule for slot in slots if slot.rule is not None}
    return Timeline(
        who=who,
        place=place,
        keys=keys,
        from_ms=drawn.from_ms,
        length_ms=length_ms,
        slots=slots,
        events=events_of(tables, who, drawn, keys, rules, key),
        elsewhere=elsewhere,
        left_out=[key for key in here if key not in keys],
    )
