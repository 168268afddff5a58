"""Quotas changed by AlterClientQuotas (KIP-546): KRaft, and ZooKeeper clusters from 2.6 on by way of their brokers.

Kafka has no compare-and-set for quotas. The value is read right before it is written, one round trip apart: an edit
that comes in between is overwritten, and only reading the value afterwards shows who came last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Held, Outcome, Written
from kquota_spark.enforcement.edges.kafka_lease import KafkaLease
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.quota_admin import QuotaAdmin


class AdminTarget:
    """A `QuotaTarget`. Kafka does not say who else manages a quota: `Held.owner` is empty."""

    def __init__(self, admin: QuotaAdmin, lease: KafkaLease) -> None:
        self._admin, self._lease = admin, lease

    def read(self, quotas: Collection[Quota]) -> Mapping[Quota, Held]:
        """What is there now.

        Raises:
            UserError: no broker answers, or it does not let us see the quotas.
        """
        entities = sorted({quota.entity for quota in quotas}, key=str)
        found = {(entity, key): value for entity, key, value in self._admin.describe(entities)}
        values = {quota: found.get((quota.entity, quota.key)) for quota in quotas}
        return {quota: Held(value, json.dumps({"value": value})) for quota, value in values.items()}

    def refusal(self, quota: Quota, value: float | None) -> str | None:
        """The broker's words, asked with validate_only.

        Raises:
            UserError: no broker answers.
        """
        refused = self._admin.alter(quota.entity, {quota.key.value: value}, validate_only=True)
        return None if refused is None else refused.words

    def write(self, quota: Quota, value: float | None, expected: Held, fencing: int) -> Written:
        """Set or remove one key of one entity."""
        return self._changed(quota, value, expected.value, fencing)

    def put_back(self, quota: Quota, expected: float | None, note: str, fencing: int) -> Written:
        """Restore the value that the note names. With KRaft there is no text and no node behind it."""
        try:
            match json.loads(note):
                case {"value": float() | int() | None as value}:
                    return self._changed(quota, value, expected, fencing)
        except ValueError:
            pass
        return Written(Outcome.REFUSED, "not the note of a quota of the Admin API")

    def _changed(self, quota: Quota, value: float | None, expected: float | None, fencing: int) -> Written:
        intent = f"{quota.entity} {quota.key.value} {'removed' if value is None else repr(value)}"
        refused = self._lease.confirm(fencing, "intent", intent)
        if refused is not None:
            return refused
        try:
            found = self._value(quota)
        except UserError as error:
            return Written(Outcome.REFUSED, f"nothing was sent: {error}")
        if found != expected:
            words = "not set" if found is None else f"{found:g}"
            return Written(Outcome.CHANGED, f"{quota.entity}: {quota.key.value} is {words}")
        if not self._lease.is_confirmed:
            return Written(Outcome.FENCED)
        return self._sent(quota, value)

    def _sent(self, quota: Quota, value: float | None) -> Written:
        try:
            refusal = self._admin.alter(quota.entity, {quota.key.value: value})
        except UnreachableError as error:
            return Written(Outcome.UNKNOWN, str(error))
        except UserError as error:
            return Written(Outcome.REFUSED, str(error))
        if refusal is None:
            self._admin.wait_for(quota.entity, {quota.key: value})
            return Written(Outcome.DONE)
        return Written(Outcome.UNKNOWN if refusal.is_unsure else Outcome.REFUSED, refusal.words)

    def _value(self, quota: Quota) -> float | None:
        return self.read([quota])[quota].value
