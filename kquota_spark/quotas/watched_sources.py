"""The sources of quotas that can be followed: ZooKeeper with its watches, the Admin API by polling."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.formats.znodes.nodes import REQUIRED_ROOTS, View
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.model.quotas.rules import BEGINNING_MS
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


class ZooKeeperSource:
    """The nodes below /config in ZooKeeper. Only `stop` and `wake` may be called from other threads."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._quotas = settings.quotas
        self._clock_ms = clock_ms
        self.apply_lag_ms: int = settings.quotas.apply_lag
        """Time after which brokers apply an edit, ms."""
        self._tree = QuotaTree(self._quotas)
        self._compared: tuple[View, Ledger] | None = None
        self._is_complete = False

    def start(self) -> None:
        """Connect and wait until the source can be read.

        Raises:
            UnreachableError: it does not answer within the time limit; reading may continue nevertheless.
            UserError: it refuses us.
        """
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
        """Wait until there may be an edit, or a sign of life is due."""
        self._tree.changed.wait(self._quotas.known_through_interval / 1_000)

    def wake(self) -> None:
        """End a `wait` early."""
        self._tree.changed.set()

    def changes(self, after: Ledger) -> Answer | None:
        """The edits that are not recorded yet; None while the source does not answer.

        They are incomplete if some nodes cannot be read, or edits are refused or not believed.

        Args:
            after: the recorded edits; the new ones are recorded there.
        """
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
        """Disconnect."""
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


class AdminSource:
    """Polls DescribeClientQuotas of a KRaft cluster, or of brokers in ZooKeeper mode.

    An answer has no times, so it is only known that an edit was made between two polls. Quotas in the first answer may
    always have been in force. The clock should agree with that of the brokers.
    """

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self.apply_lag_ms: int = 0
        kafka = settings.kafka
        timeout_ms = settings.quotas.connect_timeout
        self._admin = QuotaAdmin(kafka.bootstrap_servers, kafka.options, timeout_ms=timeout_ms)
        self._woken = threading.Event()
        self._failures = 0

    def start(self) -> None:
        """See `ZooKeeperSource`."""
        self._described()

    def wait(self) -> None:
        """See `ZooKeeperSource`; it waits longer after each failure."""
        pause_s: float = self._settings.quotas.poll_interval / 1_000
        if self._failures:
            pause_s = min(pause_s * 2**self._failures, max(_LONGEST_PAUSE_S, pause_s))
        self._woken.wait(pause_s)
        self._woken.clear()

    def wake(self) -> None:
        """See `ZooKeeperSource`."""
        self._woken.set()

    def changes(self, after: Ledger) -> Answer | None:
        """See `ZooKeeperSource`."""
        asked_at_ms = self._clock_ms()
        try:
            found = self._described()
        except UnreachableError as error:
            if not self._failures:
                _log.warning("%s; quotas are not known from here on", error)
            self._failures = min(self._failures + 1, 10)
            return None
        if self._failures:
            _log.warning("Kafka %s describes its quotas again", self._settings.kafka.bootstrap_servers)
            self._failures = 0
        after_ms = _not_ahead(after.complete_through_ms, asked_at_ms)
        edits = after.compare_described(found, after_ms, self._clock_ms())
        if edits.vanished:
            return Answer(edits)
        lag_ms = 0 if self._admin.has_zookeeper else _METADATA_LAG_MS
        # Not the maximum of both: this clock may have been ahead at the last poll.
        after.complete_through_ms = asked_at_ms - lag_ms
        return Answer(edits, after.complete_through_ms)

    def stop(self) -> None:
        """See `ZooKeeperSource`."""
        self._admin.close()

    def _described(self) -> dict[AnyEntity, dict[AnyKey, float]]:
        found = self._admin.quota_set()
        self.apply_lag_ms = self._settings.quotas.apply_lag if self._admin.has_zookeeper else 0
        return found


def _not_ahead(complete_through_ms: int, asked_at_ms: int) -> int:
    """The time up to which the last read was complete, epoch ms; `BEGINNING_MS` if the clock was ahead then."""
    return complete_through_ms if complete_through_ms <= asked_at_ms else BEGINNING_MS


WatchedSource = ZooKeeperSource | AdminSource
