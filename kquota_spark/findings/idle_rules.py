"""Rules that limit nobody: shadowed by more specific rules, dead because no client they name was seen, or misnamed.

A rule is judged by the clients that it names only after a day or more of usage since it was set. Before that, a nightly
job may simply not have run yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kquota_spark.model.compare.observed_clients import ANY_NAME, Observed, Rule, Seen
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, Name
from kquota_spark.model.quotas.names import desanitise
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey

LEAST_OBSERVED_MS = 86_400_000


class Shadow(NamedTuple):
    """A key of a rule that never governs, and the rules that govern instead; if `named` is empty, it never can."""

    rule: Rule
    key: QuotaKey
    by: tuple[str, ...]
    named: Sequence[Seen]


class Dead(NamedTuple):
    """Keys of a rule for which no client was seen."""

    rule: Rule
    keys: tuple[QuotaKey, ...]


def shadowed(observed: Observed) -> Iterator[Shadow]:
    """Keys of rules that come after another rule for all clients that they name."""
    for rule in observed.rules:
        parts = (rule.entity.user, rule.entity.client_id)
        user, client_id = (part if isinstance(part, str) else ANY_NAME for part in parts)
        for key in rule.quotas:
            named = _named_by(rule, key, observed)
            # Most rules govern the first client that they name, so the search stays cheap with thousands of rules.
            if any(observed.resolved(one).entity == rule.entity for one in named):
                continue
            always = observed.answer(user, client_id, key).entity
            if always is not None and always != rule.entity:
                yield Shadow(rule, key, (str(always),), ())
            # A default is a safety net: it is not a fault if it governs nobody now.
            elif named and DEFAULT not in parts and not observed.is_sampled and _is_old(rule, observed):
                governing = {str(observed.resolved(one).entity) for one in named}
                yield Shadow(rule, key, tuple(sorted(governing)), named)


def dead(observed: Observed) -> Iterator[Dead]:
    """Rules with a name that no seen client has; a name that is only spelt wrong is another finding."""
    names = misnamed(observed)
    for rule in () if observed.is_sampled else observed.rules:
        is_named = isinstance(rule.entity.user, str) or isinstance(rule.entity.client_id, str)
        if not is_named or rule.entity in names or not _is_old(rule, observed):
            continue
        keys = tuple(key for key in rule.quotas if not _named_by(rule, key, observed))
        if keys:
            yield Dead(rule, keys)


def _named_by(rule: Rule, key: QuotaKey, observed: Observed) -> list[Seen]:
    """The clients that the rule's entity names, of the bandwidth type that the key limits; of both for other keys."""
    types = [quota_type for quota_type in BANDWIDTH if quota_type.key is key] or list(BANDWIDTH)
    user = rule.entity.user
    return [
        one
        for one in observed.named_by(rule.entity)
        if one.quota_type in types and (not isinstance(user, str) or one.user == user)
    ]


def _is_old(rule: Rule, observed: Observed) -> bool:
    return observed.to_ms - max(rule.valid_from_ms, observed.from_ms) >= LEAST_OBSERVED_MS


def misnamed(observed: Observed) -> dict[Entity, tuple[str, str]]:
    """Entities with a name that no client has, while a client has the name that was meant: as set, and as seen.

    The name has the type of the principal before it (`User:alice`, but brokers compare `alice`). Or it is encoded where
    names are raw (`CN%3Dapp` in KRaft).
    """
    users = {one.user for one in observed.seen}
    client_ids = {one.client_id for one in observed.seen}
    found: dict[Entity, tuple[str, str]] = {}
    for rule in observed.rules:
        for name, seen in ((rule.entity.user, users), (rule.entity.client_id, client_ids)):
            if not isinstance(name, str) or name in seen:
                continue
            for meant in (name.removeprefix("User:"), _decoded(name)):
                if meant not in (name, "") and meant in seen:
                    found[rule.entity] = (name, meant)
    return found


class Mangled(NamedTuple):
    """The entity that was meant, the one that exists instead, and what happened to its name."""

    meant: AnyEntity
    stands: AnyEntity
    why: str


def mangled_names(before: QuotaSet, after: QuotaSet) -> Iterator[Mangled]:
    """Entities of `after` that are mangled copies of entities which only `before` has: no client has such a name.

    A migration from ZooKeeper to KRaft is known to leave them. KAFKA-16222: names were copied as ZooKeeper spells them
    (`CN%3Dapp` for `CN=app`). KAFKA-16411: the default became a user with an empty name.
    """
    for entity, meant in mangled_entities(after):
        if entity not in before and meant in before:
            why = "the name is still as ZooKeeper spells it (KAFKA-16222)"
            if DEFAULT in (meant.user, meant.client_id) and DEFAULT not in (entity.user, entity.client_id):
                why = "the default became a name (KAFKA-16411)"
            yield Mangled(meant, entity, why)


def mangled_entities(quotas: QuotaSet) -> Iterator[tuple[Entity, Entity]]:
    """Entities with a name that could be mangled, each with the entity that was meant, which has no quotas."""
    for entity in in_order(quotas):
        if isinstance(entity, Entity):
            meant = Entity(_meant(entity.user), _meant(entity.client_id))
            if meant != entity and meant not in quotas:
                yield entity, meant


def _meant(name: Name) -> Name:
    if name is None or isinstance(name, Default):
        return name
    decoded = _decoded(name)
    return DEFAULT if decoded in ("", DEFAULT.value) else decoded


def _decoded(name: str) -> str:
    try:
        return desanitise(name) if "%" in name else name
    except ValueError:
        return name
