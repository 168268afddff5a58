"""Which clients must be judged together: those that share a bucket of a broker, directly or through others.

What a bucket measures depends on all of its clients. A throttle in one bucket also delays the requests of the same
connections in other buckets. So the figures of a bucket need the usage of all clients that are linked to it, of all
types, before and after a change. Clients that are not linked cannot change them. A connection belongs to one client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.govern import Governor, RuleGovernor
from kquota_spark.model.loops.tried import Key
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import BEGINNING_MS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

Span = tuple[int, int]
"""First second and end of a period, epoch ms."""
_SEEN = f"""
select broker_id, quota_type, coalesce(principal_type, 'User'), "user", client_id, epoch_ms(max(usage.second)),
       sum(requests)::bigint
from usage
where cluster_id = ? and {FROM_LOG} and list_contains(?, quota_type)
  and usage.second >= make_timestamptz(?::bigint) and usage.second < make_timestamptz(?::bigint)
group by all order by all
"""  # noqa: S608 - a condition of ours
_MOST_EDITS = 1_000
"""Maximum number of edits that can concern one client; with more, all clients of a broker are judged together."""


class Identity(NamedTuple):
    """A client's use of one quota type of one broker in a period."""

    broker_id: int
    quota_type: QuotaType
    principal: Principal
    client_id: str
    last_ms: int
    """Its last second, epoch ms."""
    requests: int

    @property
    def client(self) -> tuple[str, str]:
        """User and client id."""
        return self.principal.name, self.client_id


class Linked(NamedTuple):
    """Clients of one broker that share buckets, with no client outside of them.

    Attributes:
        broker_id: the broker, `CONTROLLER_ID` for controller mutations.
        clients: user and client id of each.
        buckets: type and bucket of all buckets that they use in the period, before or after; None if not known.
        requests: of all types, in the period.
        spans: the periods to read.
    """

    broker_id: int
    clients: frozenset[tuple[str, str]]
    buckets: frozenset[Key] | None
    requests: int
    spans: tuple[Span, ...]


def identities(settings: Settings, from_ms: int, to_ms: int) -> list[Identity]:
    """The clients in the usage of a period, per broker and type.

    Args:
        settings: where the tables are, and the cluster.
        from_ms: first second, epoch ms.
        to_ms: end, epoch ms, exclusive.

    Raises:
        UserError: the table cannot be read.
    """
    types = [quota_type.value for quota_type in QuotaType]
    with Tables(settings) as tables:
        tables.open("usage", from_ms)
        rows = tables.query(_SEEN, [settings.cluster_id, types, from_ms * 1_000, to_ms * 1_000]).rows
    return [
        Identity(broker_id, QuotaType(name), Principal(kind, user), client_id, last_ms, requests or 0)
        for broker_id, name, kind, user, client_id, last_ms, requests in rows
    ]


def linked_clients(seen: Iterable[Identity], governors: Sequence[Governor], period: Span) -> list[Linked]:
    """The clients in groups that share buckets, by broker.

    A callback may decide by more than names, so with one all clients of a broker are one group.

    Args:
        seen: the clients of the period.
        governors: the quotas before and after.
        period: the period to read.
    """
    of_broker: dict[int, list[Identity]] = defaultdict(list)
    for one in seen:
        of_broker[one.broker_id].append(one)
    return [
        linked
        for broker_id in sorted(of_broker)
        for linked in _of_broker(broker_id, of_broker[broker_id], governors, period)
    ]


def with_buckets(linked: Iterable[Linked], wanted: Mapping[Key, Sequence[Span]]) -> list[Linked]:
    """The groups that use one of the wanted buckets, each with the periods of its wanted buckets.

    Args:
        linked: groups of clients.
        wanted: the periods to read by type and bucket.
    """
    found = []
    for one in linked:
        keys = wanted.keys() if one.buckets is None else one.buckets & wanted.keys()
        spans = sorted({span for key in keys for span in wanted[key]})
        if spans:
            found.append(one._replace(spans=tuple(_merged(spans))))
    return found


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans in order, with those that touch or overlap as one."""
    last: Span | None = None
    for span in spans:
        if last is not None and span[0] <= last[1]:
            last = last[0], max(last[1], span[1])
        else:
            if last is not None:
                yield last
            last = span
    if last is not None:
        yield last


def _of_broker(
    broker_id: int, seen: Sequence[Identity], governors: Sequence[Governor], period: Span
) -> Iterator[Linked]:
    buckets = [_buckets(one, governors, period) for one in seen]
    if None in buckets:
        yield _group(broker_id, seen, None, period)
        return
    links = _Links()
    for one, keys in zip(seen, buckets, strict=True):
        for key in keys or ():
            links.join(one.client, key)
    groups: dict[object, list[int]] = defaultdict(list)
    for place, one in enumerate(seen):
        groups[links.first(one.client)].append(place)
    for places in groups.values():
        keys = {key for place in places for key in buckets[place] or ()}
        yield _group(broker_id, [seen[place] for place in places], keys, period)


def _group(broker_id: int, of_group: Sequence[Identity], keys: set[Key] | None, period: Span) -> Linked:
    return Linked(
        broker_id,
        frozenset(one.client for one in of_group),
        None if keys is None else frozenset(keys),
        sum(one.requests for one in of_group),
        (period,),
    )


def _buckets(one: Identity, governors: Sequence[Governor], period: Span) -> set[Key] | None:
    """The buckets of a client in the period under all quotas; None if they are not known beforehand."""
    found: set[Key] = set()
    for governor in governors:
        if not isinstance(governor, RuleGovernor):
            return None
        time_ms, edits = max(period[0], BEGINNING_MS), 0
        while time_ms < period[1]:
            governed = governor.govern(one.broker_id, one.quota_type, one.principal, one.client_id, time_ms)
            found.add((one.quota_type, governed.bucket))
            end_ms, edits = governed.governing.valid_to_ms, edits + 1
            if end_ms is None:
                break
            if edits > _MOST_EDITS:
                return None
            time_ms = end_ms
    return found


class _Links:
    """Sets of things that are joined, each with one of them as its first."""

    def __init__(self) -> None:
        self._above: dict[object, object] = {}

    def first(self, thing: object) -> object:
        above = self._above
        while (upper := above.setdefault(thing, thing)) != thing:
            above[thing] = above[upper]  # a shorter way for the next time
            thing = upper
        return thing

    def join(self, one: object, other: object) -> None:
        self._above[self.first(other)] = self.first(one)
