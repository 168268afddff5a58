"""Names that a migration from ZooKeeper to KRaft is known to spoil: a mangled copy stands where the real one was.

KAFKA-16222: names were copied as ZooKeeper spells them (`CN%3Dapp` for `CN=app`). KAFKA-16411: the default became a
user with an empty name. Nobody has such a name, so these quotas govern nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, Name
from kquota_spark.model.quotas.names import desanitise
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order


class Mangled(NamedTuple):
    """An entity that stands there instead of the one that was meant, and what happened to its name."""

    meant: AnyEntity
    stands: AnyEntity
    why: str


def mangled_names(before: QuotaSet, after: QuotaSet) -> Iterator[Mangled]:
    """Entities of `after` that are mangled copies of such as are in `before` only."""
    for entity in in_order(after):
        if not isinstance(entity, Entity) or entity in before:
            continue
        meant = Entity(_meant(entity.user), _meant(entity.client_id))
        if meant != entity and meant in before and meant not in after:
            has_lost_default = DEFAULT in (meant.user, meant.client_id) and DEFAULT not in (
                entity.user,
                entity.client_id,
            )
            why = (
                "the default became a name (KAFKA-16411)"
                if has_lost_default
                else "the name is still as ZooKeeper spells it (KAFKA-16222)"
            )
            yield Mangled(meant, entity, why)


def _meant(name: Name) -> Name:
    if name is None or isinstance(name, Default):
        return name
    try:
        decoded = desanitise(name) if "%" in name else name
    except ValueError:
        return name
    return DEFAULT if decoded in ("", DEFAULT.value) else decoded
