"""The lease of an enforcer that changes quotas by AlterClientQuotas (KIP-546): KRaft, and ZooKeeper from Kafka 2.6.

The lease is kept in Kafka. Every holder uses the transactional id `kquota-enforcer-<cluster_id>`. `init_transactions`
raises its epoch, and the broker refuses a producer with an older one: that is the fence. The newest record of the lease
topic shows whether a holder is alive: if it is older than the lease time, the lease may be taken over.

Ages are the difference of our clock and the broker's: an enforcer with a clock that is ahead takes over too early, and
that fences the other one. The number of a holder is the offset of its first record, so it starts again if the topic is
deleted.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from typing import Any

from kquota_spark.config.own_clients import ENFORCER
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Holder, Outcome, Written
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.lease_topic import LeaseRecord, LeaseTopic
from kquota_spark.process.clock import now_ms

_TIMEOUT_S = 10.0
_FIRST_S = 30.0
"""Timeout of `init_transactions`, seconds: the first call makes the broker create the topic of transactions."""
_BEATS = 3
"""Signs of life per lease time."""


class KafkaLease:
    """A `Lease` in Kafka; its own thread sends signs of life while it is held."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lease_time_ms = settings.enforcement.lease_time
        self._topic = LeaseTopic(settings)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lock = threading.RLock()
        self._command = ""
        self._producer: Any = None
        self._fencing: int | None = None
        self._since_ms: int | None = None
        self._confirmed_until_s = 0.0
        self._ended = threading.Event()

    def acquire(self, command: str = "") -> int | None:
        """Take the lease, unless we hold it already; its fencing number, None if another enforcer holds it.

        Args:
            command: a person's command, for `holder`; empty for the enforcer.

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
            self._command = command
            return self._taken(newest)

    def is_held(self, fencing: int) -> bool:
        """Whether we still hold the lease: a broker commits our transaction. False if it does not answer."""
        return self.confirm(fencing, "alive") is None

    def confirm(self, fencing: int, event: str, detail: str = "") -> Written | None:
        """Commit a record under the lease; None if that succeeds, otherwise the reason why nothing may be written.

        Args:
            fencing: number of the lease.
            event: kind of the record, e.g. `alive`, `intent`, `released`.
            detail: text for people.
        """
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
        """Whether no other enforcer can have taken the lease since the last commit, by the monotonic clock."""
        return time.monotonic() < self._confirmed_until_s

    def release(self) -> None:
        """Release the lease immediately; if Kafka does not answer, it ends after the lease time."""
        with self._lock:
            if self._fencing is not None:
                self.confirm(self._fencing, "released")
            self._drop()
            self._topic.close()

    def holder(self) -> Holder | None:
        """The last holder; None if nobody took the lease within the retention of the topic.

        Raises:
            UserError: Kafka does not answer.
        """
        with self._lock:
            newest = self._topic.newest() if self._topic.exists() else None
            if newest is None:
                return None
            return Holder(newest.holder, newest.since_ms, self._is_alive(newest), newest.command)

    def _is_alive(self, record: LeaseRecord) -> bool:
        age_ms = now_ms() - record.at_ms
        return record.event != "released" and age_ms < self._lease_time_ms

    def _taken(self, newest: LeaseRecord | None) -> int | None:
        from confluent_kafka import KafkaException

        try:
            self._producer = self._new_producer()
            self._producer.init_transactions(_FIRST_S)
            if self._topic.newest() != newest:  # another enforcer was faster
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
        """Commit one record; its offset, and its time in epoch ms."""
        from confluent_kafka import KafkaError, KafkaException

        began_s = time.monotonic()
        delivered: list[Any] = []
        record = {"holder": self._holder, "event": event, "since_ms": self._since_ms, "detail": detail}
        if self._command:
            record["command"] = self._command
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
    """Wait until the produced messages are delivered.

    Raises:
        KafkaException: a fatal error. The client sets it as an exception and then calls `on_delivery`, and so Python
            raises a SystemError instead.
    """
    from confluent_kafka import KafkaException

    try:
        producer.flush(_TIMEOUT_S)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from error
        raise


def _is_fenced(error: Exception) -> bool:
    """Whether a newer producer has the transactional id, or librdkafka calls the error fatal, which ends ours too.

    A missing right to the transactional id is also fatal, but no other producer caused it: it does not count.
    """
    from confluent_kafka import KafkaError

    found = error.args[0]
    fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    is_denied = found.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return found.code() in fenced or (found.fatal() and not is_denied)
