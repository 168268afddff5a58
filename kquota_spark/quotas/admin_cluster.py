"""The quotas of a cluster by the Admin API (KIP-546): with KRaft, and with ZooKeeper through brokers from Kafka 2.6.

AlterClientQuotas takes no epoch, so the fence is checked immediately before it, not inside it. Kafka has no
compare-and-set for quotas either, so the value is read one round trip before it is written. An edit between the two is
overwritten, and only a read afterwards shows which write came last. `docs/enforcing.md` describes the
remaining risks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Protocol

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change, Held, Image, Outcome, Written
from kquota_spark.errors import UnreachableError
from kquota_spark.kafka.quota_admin import Named, QuotaAdmin
from kquota_spark.model.quotas.quota_types import AnyKey, not_above_zero


class Fence(Protocol):
    """The part of the lease in Kafka that a write needs."""

    @property
    def is_confirmed(self) -> bool:
        """Whether no other enforcer can have taken the lease since the last confirmation."""

    def confirm(self, fencing: int, event: str, detail: str = "") -> Written | None:
        """Commit a record under the lease; None if that succeeds, otherwise the reason why nothing may be written.

        Args:
            fencing: number of the lease.
            event: kind of the record, e.g. `intent`.
            detail: text for people.
        """


class AdminCluster:
    """A `Cluster` over the Admin API. Kafka does not report other tools that manage a quota: `Held.owner` is empty.

    Args:
        admin: the connection to the brokers.
        lease: of the enforcer, for writes with a fence; None for a person.
    """

    def __init__(self, admin: QuotaAdmin, lease: Fence | None = None) -> None:
        self._admin, self._lease = admin, lease

    @property
    def origin(self) -> str:
        """See `Cluster`."""
        return self._admin.where

    def image(self) -> Image:
        """See `Cluster`."""
        return Image(self.origin, self._admin.quota_set())

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """See `Cluster`."""
        entities = sorted({quota.entity for quota in quotas}, key=str)
        found = {(entity, key): value for entity, key, value in self._admin.describe(entities)}
        values = {quota: found.get((quota.entity, quota.key)) for quota in quotas}
        return {quota: Held(value, json.dumps({"value": value})) for quota, value in values.items()}

    def refusal(self, change: Change) -> str | None:
        """See `Cluster`; one request with validate_only."""
        if problem := _not_above_zero(change.values):
            return problem
        refused = self._admin.alter(change.entity, _by_name(change.values), validate_only=True)
        return None if refused is None else refused.words

    def write(self, change: Change, expect: Held | None = None, fence: int | None = None) -> Written:
        """See `Cluster`; one request. A quota has no text and no node here, so a note is a value.

        Args:
            change: the change.
            expect: what the cluster must still hold; None compares nothing.
            fence: number of the lease; None for a person.

        Raises:
            UserError: no answer before anything was sent.
        """
        values = change.values if change.note is None else _noted(change)
        if values is None:
            return Written(Outcome.REFUSED, "not the note of a quota of the Admin API")
        if problem := _not_above_zero(values):
            return Written(Outcome.REFUSED, problem)
        if fence is not None:
            assert self._lease is not None, "only an enforcer has a fence"
            quota = change.quota
            value = values[quota.key]
            intent = f"{quota.entity} {quota.key.value} {'removed' if value is None else repr(value)}"
            if (refused := self._lease.confirm(fence, "intent", intent)) is not None:
                return refused
        if expect is not None:
            quota = change.quota
            found = self.read([quota])[quota].value
            if found != expect.value:
                words = "not set" if found is None else f"{found:g}"
                return Written(Outcome.CHANGED, f"{quota.entity}: {quota.key.value} is {words}")
        if self._lease is not None and fence is not None and not self._lease.is_confirmed:
            return Written(Outcome.FENCED)
        return self._sent(change, values)

    def _sent(self, change: Change, values: Mapping[AnyKey, float | None]) -> Written:
        entity = change.entity
        try:
            refusal = self._admin.alter(entity, _by_name(values))
        except UnreachableError as error:
            return Written(Outcome.UNKNOWN, f"{error}; whether {entity} was altered is not known")
        if refusal is None:
            self._admin.wait_for(entity, values)
            return Written(Outcome.DONE)
        if refusal.is_unsure:
            return Written(
                Outcome.UNKNOWN,
                f"{self.origin} does not say whether {entity} was altered: {refusal.words}: see its quotas",
            )
        return Written(Outcome.REFUSED, refusal.words)


@contextmanager
def admin_cluster(
    bootstrap_servers: str, properties: Mapping[str, str], *, timeout_ms: int, named: Named
) -> Iterator[AdminCluster]:
    """A connection to a cluster for a person, opened at the first request. Errors are those of `QuotaAdmin`.

    Args:
        bootstrap_servers: one or more brokers, `host:port,host:port`.
        properties: client properties for the login.
        timeout_ms: limit of connecting, and again of each request.
        named: settings that gave the address and the login, for errors.
    """
    with closing(QuotaAdmin(bootstrap_servers, properties, timeout_ms=timeout_ms, named=named)) as admin:
        yield AdminCluster(admin)


def _not_above_zero(values: Mapping[AnyKey, float | None]) -> str | None:
    problems = (not_above_zero(key, value) for key, value in values.items())
    return next((problem for problem in problems if problem), None)


def _by_name(values: Mapping[AnyKey, float | None]) -> dict[str, float | None]:
    return {key.value: value for key, value in values.items()}


def _noted(change: Change) -> dict[AnyKey, float | None] | None:
    """The value in the note of a change; None if it is not a note of the Admin API."""
    try:
        match json.loads(change.note or ""):
            case {"value": float() | int() | None as value}:
                return {change.quota.key: value}
    except ValueError:
        pass
    return None
