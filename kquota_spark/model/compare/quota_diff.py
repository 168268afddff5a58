"""Comparison of two sets of quotas by effect: which clients get another limit, or share it with others.

A difference between the texts may change nothing, because other rules come before, and one line may change every limit.
So clients are resolved in both sets, as brokers do it: those that were seen, and those that the names in rules make
possible. Another rule with the same limit and the same bucket is not a difference. Another bucket is one, even if the
limit stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kquota_spark.model.compare.observed_clients import ANY_NAME, Seen
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.ip_quotas import by_address, resolve_ip
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet, edits_between
from kquota_spark.model.quotas.quota_types import CONNECTION, AnyKey, IpQuotaKey, QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, candidates, resolve

_IP = IpQuotaKey.CONNECTION_CREATION_RATE


class Identity(NamedTuple):
    """The governed client: a user with a client id, or an address; None is any name without a rule of its own.

    For an address, user and client id are None. For a client, the address is None. All three None is any address.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of(cls, entity: AnyEntity) -> Identity:
        """The identity that an entity names."""
        if isinstance(entity, IpEntity):
            return cls(ip=_named(entity.ip))
        return cls(_named(entity.user), _named(entity.client_id))


class Governs(NamedTuple):
    """The limit, the rule that sets it, and the bucket for which it holds; without a rule there is no limit."""

    limit: float | None
    rule: AnyEntity | None
    bucket: Bucket | None


@dataclass(frozen=True, slots=True)
class EffectChange:
    """The limits of an identity before and after, and its recent use; `is_seen` is False if it is only possible."""

    identity: Identity
    quota_type: str
    before: Governs
    after: Governs
    is_seen: bool = False
    amount: int = 0
    throttled_ms: int = 0

    @property
    def is_other_bucket(self) -> bool:
        """Whether the identity shares its limit with other clients than before."""
        return self.before.bucket != self.after.bucket


def one_spelling(quotas: QuotaSet) -> QuotaSet:
    """The set with each address in the spelling that brokers compare."""
    return {by_address(one) if isinstance(one, IpEntity) else one: values for one, values in quotas.items()}


def text_edits(before: QuotaSet, after: QuotaSet) -> list[QuotaEdit]:
    """The edits that turn `before` into `after`; another spelling of the same address is not an edit."""
    return list(edits_between(one_spelling(before), one_spelling(after), keep_others=False))


def effect_changes(before: QuotaSet, after: QuotaSet, seen: Iterable[Seen] = ()) -> list[EffectChange]:
    """The identities that get another limit or bucket: those seen, most used first, then those only possible."""
    before, after = one_spelling(before), one_spelling(after)
    edits = text_edits(before, after)
    edited: dict[QuotaKey, set[Entity]] = {}
    for edit in edits:
        if isinstance(edit.entity, Entity) and isinstance(edit.key, QuotaKey):
            edited.setdefault(edit.key, set()).add(edit.entity)
    of_seen = list(_of_seen(before, after, edited, seen))
    known = {(change.identity, change.quota_type) for change in of_seen}
    possible = [
        change
        for key, entities in edited.items()
        for change in _possible(before, after, key, entities)
        if (change.identity, change.quota_type) not in known
    ]
    of_seen.sort(key=lambda change: (-change.amount, change.quota_type, _names(change.identity)))
    return [*of_seen, *possible, *_of_ips(before, after, edits)]


def _names(identity: Identity) -> tuple[str, ...]:
    return tuple(name or "" for name in identity)


def _of_seen(
    before: QuotaSet, after: QuotaSet, edited: Mapping[QuotaKey, set[Entity]], seen: Iterable[Seen]
) -> Iterator[EffectChange]:
    used: dict[tuple[str, str, QuotaType], tuple[int, int]] = {}
    for one in seen:
        used[one.user, one.client_id, one.quota_type] = (one.amount, one.throttled_ms)
        # A client that sends anything is under a request quota too.
        used.setdefault((one.user, one.client_id, QuotaType.REQUEST), (0, 0))
    for (user, client_id, quota_type), (amount, throttled_ms) in used.items():
        entities = edited.get(quota_type.key)
        if entities is None or entities.isdisjoint(candidates(user, client_id)):
            continue
        was, now = (_governs(quotas, Identity(user, client_id), quota_type.key) for quotas in (before, after))
        if _differs(was, now):
            identity = Identity(user, client_id)
            yield EffectChange(identity, quota_type.value, was, now, True, amount, throttled_ms)


def _possible(
    before: QuotaSet, after: QuotaSet, key: QuotaKey, entities: set[Entity]
) -> Iterator[EffectChange]:
    """A change for each kind of client that the edited rules name, without those that repeat another change."""
    quota_type = next(one for one in QuotaType if one.key is key)
    names = _ClientIds.of(before, after, key)
    shown: set[tuple[object, ...]] = set()
    done: set[Identity] = set()
    for entity in sorted(entities, key=lambda entity: (entity.level, str(entity))):
        for identity in _identities(entity, names):
            if identity in done:
                continue
            done.add(identity)
            was, now = (_governs(quotas, identity, key) for quotas in (before, after))
            of_user = (identity.user, was[:2], now[:2])
            is_shown = not isinstance(entity.client_id, str) and of_user in shown
            if _differs(was, now) and not is_shown:
                shown.add(of_user)
                yield EffectChange(identity, quota_type.value, was, now)


class _ClientIds(NamedTuple):
    """Client ids in the names of rules: those in pairs, by user, and groups that have equal limits for any user."""

    of_user: Mapping[str, set[str]]
    alike: Sequence[Sequence[str]]

    @classmethod
    def of(cls, before: QuotaSet, after: QuotaSet, key: QuotaKey) -> _ClientIds:
        of_user: dict[str, set[str]] = {}
        of_any: set[str] = set()
        for one in {*before, *after}:
            if isinstance(one, Entity) and isinstance(one.client_id, str):
                named = of_user.setdefault(one.user, set()) if isinstance(one.user, str) else of_any
                named.add(one.client_id)
        alike: dict[tuple[float | None, ...], list[str]] = {}
        for client_id in sorted(of_any):
            rules = (Entity(DEFAULT, client_id), Entity(None, client_id))
            limits = tuple(quotas.get(rule, {}).get(key) for rule in rules for quotas in (before, after))
            alike.setdefault(limits, []).append(client_id)
        return cls(of_user, list(alike.values()))


def _identities(entity: Entity, names: _ClientIds) -> Iterator[Identity]:
    """Clients that the rule of an entity could govern, one of each kind.

    The rule of a default or of a client id governs only clients that have no rule of their user before it. Brokers
    treat all of these like a user without a rule. Client ids are alike if their rules have the same limits.
    """
    user = entity.user if isinstance(entity.user, str) else None
    if isinstance(entity.client_id, str):
        yield Identity(user, entity.client_id)
        return
    yield Identity(user, None)
    yield Identity(user, "")
    own = names.of_user.get(user, set()) if user is not None else set()
    ones = (next((one for one in alike if one not in own), None) for alike in names.alike)
    for client_id in sorted({*own, *filter(None, ones)}):
        yield Identity(user, client_id)


def _governs(quotas: QuotaSet, identity: Identity, key: AnyKey) -> Governs:
    """The rule that governs an identity; each address in `quotas` has the spelling of `one_spelling`."""
    if isinstance(key, IpQuotaKey):
        return _governs_ip(quotas, identity.ip)
    user, client_id = (ANY_NAME if name is None else name for name in identity[:2])
    found = resolve(user, client_id, key, quotas.get)
    return Governs(found.limit, found.entity, None if found.limit is None else found.bucket)


def _named(name: Name) -> str | None:
    return name if isinstance(name, str) else None


def _differs(before: Governs, after: Governs) -> bool:
    return (before.limit, before.bucket) != (after.limit, after.bucket)


def _of_ips(before: QuotaSet, after: QuotaSet, edits: Iterable[QuotaEdit]) -> Iterator[EffectChange]:
    for edit in edits:
        if isinstance(edit.entity, IpEntity):
            identity = Identity.of(edit.entity)
            was, now = (_governs(quotas, identity, edit.key) for quotas in (before, after))
            if _differs(was, now):
                yield EffectChange(identity, CONNECTION, was, now)


def _governs_ip(quotas: QuotaSet, ip: str | None) -> Governs:
    def limit_of(entity: IpEntity) -> float | None:
        return quotas.get(entity, {}).get(_IP)

    try:
        found = resolve_ip(ip or "", limit_of)
        return Governs(found.limit, found.entity, None)
    except ValueError:
        # A host name, or any address without a rule.
        for entity in (*([IpEntity(ip)] if ip else []), IpEntity(DEFAULT)):
            if (limit := limit_of(entity)) is not None:
                return Governs(limit, entity, None)
    return Governs(None, None, None)
