"""A `QuotaGate` that follows the decision topic in the background, with this machine's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from kquota_spark.config.governor import rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.gateway.gate import Fallback, GateCounts, GateState, QuotaGate
from kquota_spark.gateway.topic import Connection, TopicReader
from kquota_spark.model.measure.combining import Applied
from kquota_spark.model.simulation.quota_manager import Parked, Request
from kquota_spark.process.clock import now_ms

_ROUND_S = 0.2


class FollowedGate:
    """The gate for the threads of a proxy. If Kafka is not reachable, nothing is raised and the gate becomes stale.

    Args:
        gate: the gate to keep up to date; only this object may use it afterwards.
        connection: the topic; if it does not exist yet, this waits for it.
        clock_ms: the wall clock, epoch ms.
    """

    def __init__(
        self, gate: QuotaGate, connection: Connection, *, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        self._gate, self._connection, self._clock_ms = gate, connection, clock_ms
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_error = ""
        """Why the topic could not be read at the last attempt; empty while it can be read."""

    @classmethod
    def of(cls, settings: Settings, fallback: Fallback | None = None) -> Self:
        """The gate of the cluster in the settings: `enforcement.decision_topic`, `gate_silence`, the brokers' windows.

        Args:
            settings: the same file as for the enforcer; only the connection to Kafka may differ.
            fallback: the quotas that apply when the topic has been silent for too long; None for no quotas.

        Raises:
            UserError: no topic is set.
        """
        gate = QuotaGate(
            settings.cluster_id,
            silence_ms=settings.enforcement.gate_silence,
            fallback=fallback or {},
            config=rate_config(settings),
        )
        return cls(gate, Connection.of(settings))

    def __enter__(self) -> Self:
        """Begin to follow the topic.

        Raises:
            UserError: the options of the connection are not valid.
        """
        reader = TopicReader(self._connection)
        self._thread = threading.Thread(
            target=self._follow, args=(reader,), name="kquota-decisions", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def state(self) -> GateState:
        """The source of the gate's quotas now."""
        with self._lock:
            return self._gate.state_at(self._clock_ms())

    @property
    def counts(self) -> GateCounts:
        """The outcomes of the messages up to now."""
        with self._lock:
            return replace(self._gate.counts)

    def check(self, request: Request, thread_time_ns: int = 0) -> Applied:
        """Charge a produce request; see `QuotaManager.check`."""
        with self._lock:
            return self._gate.check(request, self._clock_ms(), thread_time_ns)

    def on_response(self, request: Request, *, response_bytes: int = 0, thread_time_ns: int = 0) -> Applied:
        """Charge any request except produce; see `QuotaManager.on_response`."""
        with self._lock:
            return self._gate.on_response(
                request, self._clock_ms(), response_bytes=response_bytes, thread_time_ns=thread_time_ns
            )

    def fetch_max_bytes(self, request: Request) -> int:
        """Maximum bytes to request from the brokers with this fetch."""
        with self._lock:
            return self._gate.fetch_max_bytes(request, self._clock_ms())

    def expired(self) -> list[Parked]:
        """Take the requests out of the delay queue that have waited their delay."""
        with self._lock:
            return self._gate.expired(self._clock_ms())

    def _follow(self, reader: TopicReader) -> None:
        while not self._stop.is_set():
            try:
                records = reader.read_on(_ROUND_S)
                self.last_error = reader.last_error
            except UserError as error:
                # librdkafka itself continues to try; if that takes too long, the gate becomes stale.
                self.last_error = str(error)
                self._stop.wait(_ROUND_S)
                continue
            for record in records:
                with self._lock:
                    self._gate.take(*record, self._clock_ms())
        reader.close()
