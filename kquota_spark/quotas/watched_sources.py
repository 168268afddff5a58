"""The sources of quotas that can be followed: ZooKeeper with its watches, any other cluster by polling."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.enforce.ports import Cluster
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import REQUIRED_ROOTS, View
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.rules import BEGINNING_MS
from kquota_spark.quotas.admin_cluster import AdminCluster
from kquota_spark.quotas.ledger import Edits, Ledger
from kquota_spark.zookeeper.mirror import QuotaTree

_log = logging.getLogger(__name__)

_RETRY_S = 0.1
_LONGEST_PAUSE_S = 30.0
_METADATA_LAG_MS = 100
"""Maximum delay of a KRaft broker's copy of the metadata in a healthy cluster, ms: the broker answers from it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The edits that a source reports. All edits up to `known_through_ms` are included; None if that is not certain."""

    edits: Edits = field(default_factory=Edits)
    known_through_ms: int | None = None


class WatchedSource(Protocol):
    """The quotas of a cluster over time. Only `stop` and `wake` may be called from other threads.

    It outlives its connection: while the cluster does not answer, it tries again. A `Cluster` ends with an error then.
    """

    apply_lag_ms: int
    """Time after which brokers apply an edit, ms."""

    def start(self) -> None:
        """Connect and wait until the source can be read.

        Raises:
            UnreachableError: it does not answer within the time limit; reading may continue nevertheless.
            UserError: it refuses us.
        """

    def wait(self) -> None:
        """Wait until there may be an edit, or a sign of life is due."""

    def wake(self) -> None:
        """End a `wait` early."""

    def changes(self, after: Ledger) -> Answer | None:
        """The edits that are not recorded yet; None while the source does not answer.

        They are incomplete if some nodes cannot be read, or edits are refused or not believed.

        Args:
            after: the recorded edits; the new ones are recorded there.
        """

    def stop(self) -> None:
        """Disconnect."""


class ZooKeeperSource:
    """The nodes below /config in ZooKeeper."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._quotas = settings.quotas
        self._clock_ms = clock_ms
        self.apply_lag_ms: int = settings.quotas.apply_lag
        """Time after which brokers apply an edit, ms."""
        self._tree = QuotaTree(self._quotas)
        self._compared: tuple[View, Ledger] | None = None
        self._is_complete = False

    def start(self) -> None:
        """See `WatchedSource`."""
        deadline_s = time.monotonic() + self._quotas.connect_timeout / 1_000
        self._tree.start()
        while True:
            view = self._tree.read()
            if view is not None and not any(root in view.unreadable for root in REQUIRED_ROOTS):
                return
            if time.monotonic() > deadline_s:
                raise self._no_snapshot(view)
            self._tree.changed.wait(_RETRY_S)

    def wait(self) -> None:
        """See `WatchedSource`."""
        self._tree.changed.wait(self._quotas.known_through_interval / 1_000)

    def wake(self) -> None:
        """See `WatchedSource`."""
        self._tree.changed.set()

    def changes(self, after: Ledger) -> Answer | None:
        """See `WatchedSource`."""
        asked_at_ms = self._clock_ms()
        view = self._tree.read()
        if view is None:
            return None
        edits = Edits()
        if self._compared is None or view is not self._compared[0] or after is not self._compared[1]:
            after_ms = _not_ahead(after.complete_through_ms, asked_at_ms)
            edits = after.compare(view, self._clock_ms(), after_ms)
            self._compared = view, after
            self._is_complete = not (view.unreadable or edits.refused or edits.vanished)
        if not self._is_complete:
            return Answer(edits)
        after.complete_through_ms = asked_at_ms
        return Answer(edits, asked_at_ms)

    def stop(self) -> None:
        """See `WatchedSource`."""
        self._tree.stop()

    def _no_snapshot(self, view: View | None) -> UserError:
        where = f"ZooKeeper {self._quotas.zookeeper_connect}"
        if view is None:
            within_s = self._quotas.connect_timeout / 1_000
            return UnreachableError(
                f"{where} did not answer within {within_s:g} s: its quotas could not be read"
            )
        reason = next(view.unreadable[root] for root in REQUIRED_ROOTS if root in view.unreadable)
        return UserError(
            f"{where}: {reason}: check the chroot in quotas.zookeeper_connect, quotas.zookeeper_login and the "
            "rights of its nodes"
        )


class PolledSource:
    """Polls any `Cluster` for its image: the brokers of a KRaft cluster, or those in ZooKeeper mode.

    An image has no times, so it is only known that an edit was made between two polls. Quotas in the first image may
    always have been in force. The clock should agree with that of the brokers.

    Args:
        cluster: the cluster.
        quotas: the pause between polls, and the apply lag of brokers in ZooKeeper mode.
        clock_ms: our clock, epoch ms.
        has_zookeeper: after an image, whether the brokers are in ZooKeeper mode; otherwise they answer from a copy of
            the metadata.
        close: ends the connection to the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        quotas: Quotas,
        clock_ms: Callable[[], int],
        has_zookeeper: Callable[[], bool] = lambda: False,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._quotas, self._clock_ms = cluster, quotas, clock_ms
        self._has_zookeeper, self._close = has_zookeeper, close
        self.apply_lag_ms: int = 0
        self._woken = threading.Event()
        self._failures = 0

    def start(self) -> None:
        """See `WatchedSource`."""
        self._described()

    def wait(self) -> None:
        """See `WatchedSource`; it waits longer after each failure."""
        pause_s: float = self._quotas.poll_interval / 1_000
        if self._failures:
            pause_s = min(pause_s * 2**self._failures, max(_LONGEST_PAUSE_S, pause_s))
        self._woken.wait(pause_s)
        self._woken.clear()

    def wake(self) -> None:
        """See `WatchedSource`."""
        self._woken.set()

    def changes(self, after: Ledger) -> Answer | None:
        """See `WatchedSource`."""
        asked_at_ms = self._clock_ms()
        try:
            found = self._described()
        except UnreachableError as error:
            if not self._failures:
                _log.warning("%s; quotas are not known from here on", error)
            self._failures = min(self._failures + 1, 10)
            return None
        if self._failures:
            _log.warning("%s describes its quotas again", self._cluster.origin)
            self._failures = 0
        after_ms = _not_ahead(after.complete_through_ms, asked_at_ms)
        edits = after.compare_described(found, after_ms, self._clock_ms())
        if edits.vanished:
            return Answer(edits)
        lag_ms = 0 if self._has_zookeeper() else _METADATA_LAG_MS
        # Not the maximum of both: this clock may have been ahead at the last poll.
        after.complete_through_ms = asked_at_ms - lag_ms
        return Answer(edits, after.complete_through_ms)

    def stop(self) -> None:
        """See `WatchedSource`."""
        self._close()

    def _described(self) -> QuotaSet:
        found = self._cluster.image().quotas
        self.apply_lag_ms = self._quotas.apply_lag if self._has_zookeeper() else 0
        return found


def _polled_brokers(settings: Settings, clock_ms: Callable[[], int]) -> PolledSource:
    kafka, quotas = settings.kafka, settings.quotas
    admin = QuotaAdmin(kafka.bootstrap_servers, kafka.options, timeout_ms=quotas.connect_timeout)
    return PolledSource(AdminCluster(admin), quotas, clock_ms, lambda: admin.has_zookeeper, admin.close)


FOLLOWED: dict[str, Callable[[Settings, Callable[[], int]], WatchedSource]] = {
    "zookeeper": ZooKeeperSource,
    "admin": _polled_brokers,
}
"""What follows a cluster, by `quotas.source`; the clock returns epoch ms. It does not connect yet."""


def _not_ahead(complete_through_ms: int, asked_at_ms: int) -> int:
    """The time up to which the last read was complete, epoch ms; `BEGINNING_MS` if the clock was ahead then."""
    return complete_through_ms if complete_through_ms <= asked_at_ms else BEGINNING_MS
