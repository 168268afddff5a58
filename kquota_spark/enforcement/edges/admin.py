"""Target and lease where quotas are changed by AlterClientQuotas (KIP-546): KRaft, and ZooKeeper from 2.6 on.

The lease is kept in Kafka. Every holder uses the transactional id `kquota-enforcer-<cluster_id>`. `init_transactions`
raises its epoch, and the broker refuses whoever has an older one: that is the fence. Whether a holder lives is read
from the newest record of the lease topic: one that is older than the lease time may be taken over.

AlterClientQuotas takes no epoch, so the fence stands right in front of it and not inside it. Kafka has no
compare-and-set for quotas either: the value is read right before it is written, one round trip apart. An edit that
comes in between is overwritten, and only reading the value afterwards shows who came last. `docs/enforcement-writes.md`
has what that leaves open. Ages are told by our clock against the broker's: one that is ahead takes over too early,
which fences the other one. The number of a holder is the offset of its first record: it starts again if the topic is
deleted.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from kquota_spark.config.own_clients import ENFORCER
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Held, Holder, Outcome, Written
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.lease_topic import LeaseRecord, LeaseTopic
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.process.clock import now_ms

_TIMEOUT_S = 10.0
_FIRST_S = 30.0
"""A broker makes the topic of transactions when it is first asked for one."""
_BEATS = 3
"""Signs of life in a lease time."""


class KafkaLease:
    """A `Lease`; a thread of its own gives the signs of life while it is held."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lease_time_ms = settings.enforcement.lease_time
        self._topic = LeaseTopic(settings)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lock = threading.RLock()
        self._producer: Any = None
        self._fencing: int | None = None
        self._since_ms: int | None = None
        self._confirmed_until_s = 0.0
        self._ended = threading.Event()

    def acquire(self) -> int | None:
        """The fencing number if the lease is ours, now or already; None while another enforcer holds it.

        Raises:
            UserError: Kafka does not answer, or does not let us use the topic.
        """
        with self._lock:
            if self._fencing is not None and self.is_held(self._fencing):
                return self._fencing
            self._topic.ensure()
            newest = self._topic.newest()
            if newest is not None and newest.holder != self._holder and self._is_alive(newest):
                return None
            return self._taken(newest)

    def is_held(self, fencing: int) -> bool:
        """Whether the lease is still ours: a broker commits a transaction of ours. Not if it does not answer."""
        return self.confirm(fencing, "alive") is None

    def confirm(self, fencing: int, event: str, detail: str = "") -> Written | None:
        """Commit a record under the lease; None if that was done, otherwise why nothing may be written."""
        from confluent_kafka import KafkaException

        with self._lock:
            if self._fencing != fencing:
                return Written(Outcome.FENCED)
            try:
                self._commit(event, detail)
            except KafkaException as error:
                self._drop()
                if _is_fenced(error):
                    return Written(Outcome.FENCED)
                return Written(
                    Outcome.REFUSED, f"nothing was sent: {self._topic.unreachable(error.args[0], 'Write')}"
                )
            return None

    @property
    def is_confirmed(self) -> bool:
        """Whether nobody can have taken over since the last commit; by a clock that goes on while we are stopped."""
        return time.monotonic() < self._confirmed_until_s

    def release(self) -> None:
        """Give it up at once; if Kafka does not answer, it ends with the lease time."""
        with self._lock:
            if self._fencing is not None:
                self.confirm(self._fencing, "released")
            self._drop()
            self._topic.close()

    def holder(self) -> Holder | None:
        """Who took it last; None where nobody did, or not within the retention of the topic.

        Raises:
            UserError: Kafka does not answer.
        """
        with self._lock:
            newest = self._topic.newest() if self._topic.exists() else None
            if newest is None:
                return None
            return Holder(newest.holder, newest.since_ms, self._is_alive(newest))

    def _is_alive(self, record: LeaseRecord) -> bool:
        age_ms = now_ms() - record.at_ms
        return record.event != "released" and age_ms < self._lease_time_ms

    def _taken(self, newest: LeaseRecord | None) -> int | None:
        from confluent_kafka import KafkaException

        try:
            self._producer = self._new_producer()
            self._producer.init_transactions(_FIRST_S)
            if self._topic.newest() != newest:  # somebody was faster: the next one to ask gets it
                self._drop()
                return None
            self._fencing, self._since_ms = self._commit("acquired", "")
        except KafkaException as error:
            self._drop()
            if _is_fenced(error):
                return None
            raise self._topic.unreachable(error.args[0], "Write") from error
        self._ended = threading.Event()
        threading.Thread(target=self._beat, args=(self._fencing, self._ended), daemon=True).start()
        return self._fencing

    def _beat(self, fencing: int, ended: threading.Event) -> None:
        while not ended.wait(self._lease_time_ms / 1_000 / _BEATS):
            if not self.is_held(fencing):
                return

    def _commit(self, event: str, detail: str) -> tuple[int, int]:
        """Commit one record; its offset and its time."""
        from confluent_kafka import KafkaError, KafkaException

        began_s = time.monotonic()
        delivered: list[Any] = []
        record = {"holder": self._holder, "event": event, "since_ms": self._since_ms, "detail": detail}
        self._producer.begin_transaction()
        self._producer.produce(
            self._topic.name,
            json.dumps(record, ensure_ascii=False).encode(),
            self._settings.cluster_id.encode(),
            partition=0,
            on_delivery=lambda _, message: delivered.append(message),
        )
        flush(self._producer)
        self._producer.commit_transaction(_TIMEOUT_S)
        if not delivered:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._confirmed_until_s = began_s + self._lease_time_ms / 1_000
        return delivered[0].offset(), delivered[0].timestamp()[1]

    def _new_producer(self) -> Any:
        kafka = self._settings.kafka
        properties = {
            **kafka_clients.connection(kafka.bootstrap_servers, kafka.options),
            "client.id": ENFORCER,
            "transactional.id": self._topic.transactional_id,
            "transaction.timeout.ms": round(_TIMEOUT_S * 1_000),
            "message.timeout.ms": round(_TIMEOUT_S * 1_000),
            "linger.ms": 0,
        }
        return kafka_clients.producer(properties)

    def _drop(self) -> None:
        self._ended.set()
        self._producer, self._fencing, self._since_ms = None, None, None
        self._confirmed_until_s = 0.0


def flush(producer: Any) -> None:
    """Wait for what was produced.

    Raises:
        KafkaException: a fatal error. The client sets it as an exception and then calls `on_delivery`, for which Python
            raises a SystemError in its place.
    """
    from confluent_kafka import KafkaException

    try:
        producer.flush(_TIMEOUT_S)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from error
        raise


def _is_fenced(error: Exception) -> bool:
    """Whether a younger producer has the transactional id; every error that librdkafka calls fatal ends ours too.

    A right that is missing is fatal as well, and nobody else's doing.
    """
    from confluent_kafka import KafkaError

    found = error.args[0]
    fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    is_denied = found.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return found.code() in fenced or (found.fatal() and not is_denied)


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
