"""Whose thread time is worth measuring: clients that some request_percentage could cover, at some time.

Every request of a client counts for its request quota, so measuring everybody would double the work of an audit in
which few or none have one. The answer leaves out when a quota held, and takes the user of a pair for the pair: it
may name a client too many, never one too few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import RuleBook


@dataclass(frozen=True, slots=True)
class RequestCoverage:
    """Everybody, or the users and client ids that are named."""

    is_everyone: bool = False
    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()

    def covers(self, user: str, client_id: str) -> bool:
        """Whether the thread time of this client is measured."""
        return self.is_everyone or user in self.users or client_id in self.client_ids


def request_coverage(book: RuleBook) -> RequestCoverage:
    """By Kafka's own resolution."""
    carriers = list(_carriers(book))
    client_only = [entity.client_id for entity in carriers if not isinstance(entity.user, str)]
    return RequestCoverage(
        is_everyone=any(not isinstance(client_id, str) for client_id in client_only),
        users=frozenset(entity.user for entity in carriers if isinstance(entity.user, str)),
        client_ids=frozenset(client_id for client_id in client_only if isinstance(client_id, str)),
    )


def callback_coverage(book: RuleBook) -> RequestCoverage:
    """With a callback any quota may be anybody's."""
    return RequestCoverage(is_everyone=any(True for _ in _carriers(book)))


def _carriers(book: RuleBook) -> Iterable[Entity]:
    for entity in book:
        if any(QuotaKey.REQUEST_PERCENTAGE in (rule.values or {}) for rule in book.of(entity)):
            yield entity
