"""Mangled names that one side shows without the other: a rule for a name that no client can have, or that none has.

Both sides may be of the time after a migration, for example a file that was exported then. They are equal, and only the
names themselves or the clients show the defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kquota_spark.findings.idle_rules import Mangled, mangled_entities
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.quotas.quota_set import QuotaSet

_EMPTY = "no rule can be set for an empty name, so it is a default that became a name (KAFKA-16411)"
_OF_CLIENTS = "clients send under the decoded name, and none under this one (KAFKA-16222)"


def leftover_names(quotas: QuotaSet, seen: Iterable[Seen], known: Iterable[Mangled]) -> Iterator[Mangled]:
    """Entities with an empty name, or with an encoded one that no client has while a client has the decoded one.

    Args:
        quotas: one side.
        seen: the clients of the period.
        known: entities that were found by comparison; they are left out.
    """
    found = {one.stands for one in known}
    clients = [(one.user, one.client_id) for one in seen]
    users, client_ids = {user for user, _ in clients}, {client_id for _, client_id in clients}
    for entity, meant in mangled_entities(quotas):
        if entity in found:
            continue
        if "" in (entity.user, entity.client_id):
            yield Mangled(meant, entity, _EMPTY)
            continue
        pairs = ((entity.user, meant.user, users), (entity.client_id, meant.client_id, client_ids))
        others = [(name, now, names) for name, now, names in pairs if name != now]
        if all(name not in names and now in names for name, now, names in others):
            yield Mangled(meant, entity, _OF_CLIENTS)
