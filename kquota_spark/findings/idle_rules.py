"""Rules that limit nobody: shadowed by what is more specific, or dead because nobody whom they name was seen.

A rule is judged by the clients that it names only when a day or more of usage was seen since it was set: until then a
nightly job may just not have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kquota_spark.findings.misencoded_entities import misnamed
from kquota_spark.model.compare.observed_clients import ANY_NAME, Observed, Rule, Seen
from kquota_spark.model.quotas.entities import DEFAULT, Default
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaKey

LEAST_OBSERVED_MS = 86_400_000


class Shadow(NamedTuple):
    """A key of a rule that never decides, and the rules that do; without clients it could not for any."""

    rule: Rule
    key: QuotaKey
    by: tuple[str, ...]
    named: Sequence[Seen]


class Dead(NamedTuple):
    """Keys of a rule whose clients were not seen."""

    rule: Rule
    keys: tuple[QuotaKey, ...]


def shadowed(observed: Observed) -> Iterator[Shadow]:
    """Keys of rules that come after another rule for all whom they name."""
    for rule in observed.rules:
        user, client_id = (any_if_default(part) for part in (rule.entity.user, rule.entity.client_id))
        # A default is a net: nobody in it now is no fault.
        has_default = DEFAULT in (rule.entity.user, rule.entity.client_id)
        for key in rule.quotas:
            named = _named_by(rule, key, observed)
            # Most rules govern the first that they name: thousands of rules must not mean as many clients each.
            if any(observed.resolved(one).entity == rule.entity for one in named):
                continue
            always = observed.answer(user, client_id, key).entity
            if always is not None and always != rule.entity:
                yield Shadow(rule, key, (str(always),), ())
            elif named and not has_default and not observed.is_sampled and _is_old_enough(rule, observed):
                yield Shadow(rule, key, _names_of(named, observed), named)


def dead(observed: Observed) -> Iterator[Dead]:
    """Rules with a name that nobody who was seen has; a name that is only spelt wrong is another finding."""
    names = misnamed(observed)
    for rule in () if observed.is_sampled else observed.rules:
        is_named = isinstance(rule.entity.user, str) or isinstance(rule.entity.client_id, str)
        if not is_named or rule.entity in names or not _is_old_enough(rule, observed):
            continue
        keys = tuple(key for key in rule.quotas if not _named_by(rule, key, observed))
        if keys:
            yield Dead(rule, keys)


def any_if_default(part: str | Default | None) -> str:
    """A name that an entity's part matches: its own, or any."""
    return part if isinstance(part, str) else ANY_NAME


def _named_by(rule: Rule, key: QuotaKey, observed: Observed) -> list[Seen]:
    """The clients that the rule's entity names, of the type that the key limits; any type for other keys."""
    types = [quota_type for quota_type in BANDWIDTH if quota_type.key is key] or list(BANDWIDTH)
    user = rule.entity.user
    return [
        one
        for one in observed.named_by(rule.entity)
        if one.quota_type in types and (not isinstance(user, str) or one.user == user)
    ]


def _names_of(named: Sequence[Seen], observed: Observed) -> tuple[str, ...]:
    """The rules that govern clients, by name."""
    return tuple(sorted({str(observed.resolved(one).entity) for one in named}))


def _is_old_enough(rule: Rule, observed: Observed) -> bool:
    return observed.to_ms - max(rule.valid_from_ms, observed.from_ms) >= LEAST_OBSERVED_MS
