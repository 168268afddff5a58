"""All quotas of a cluster at one moment, and the edits that lead from one such set to another.

What import, export, diff and the quota commands pass around; validity over time is `model.quotas.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_types import AnyKey

QuotaSet = Mapping[AnyEntity, Mapping[AnyKey, float]]
"""The values of each entity that has any: bytes, mutations or connections per second, or percent of a thread."""


class QuotaEdit(NamedTuple):
    """One key of one entity: its value before and after; None is not set."""

    entity: AnyEntity
    key: AnyKey
    before: float | None
    after: float | None


def edits_between(before: QuotaSet, after: QuotaSet, *, keep_others: bool) -> Iterator[QuotaEdit]:
    """The edits that turn one set into another, by level, entity and key.

    Args:
        before: what is there.
        after: what is wanted.
        keep_others: leave keys and entities alone that `after` does not name; else they are removed.
    """
    for entity in sorted({*before, *after}, key=_order):
        has, wants = before.get(entity, {}), after.get(entity, {})
        for key in sorted({*has, *wants}, key=lambda key: key.value):
            if has.get(key) != wants.get(key) and (key in wants or not keep_others):
                yield QuotaEdit(entity, key, has.get(key), wants.get(key))


def in_order(quotas: QuotaSet) -> list[AnyEntity]:
    """The entities of a set as people read them: by level, most specific first, ips last; then by name."""
    return sorted(quotas, key=_order)


def _order(entity: AnyEntity) -> tuple[int, str]:
    return entity.level or 9, str(entity)
