"""Keeps `quota_changes` and `quota_rules` up to date with the source of the quotas, in a thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltalake.exceptions import DeltaError

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_file import read_quota_file
from kquota_spark.formats.znodes import REQUIRED_ROOTS, Node, View, has_data, name_nodes
from kquota_spark.io.rules_tables import NodeProblem, RulesTables
from kquota_spark.io.storage import storage_options
from kquota_spark.io.watch_leaders import LeaderWatcher
from kquota_spark.io.zookeeper import QuotaTree
from kquota_spark.model.entities import AnyEntity, IpEntity
from kquota_spark.model.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.model.rules import QuotaChange

_log = logging.getLogger(__name__)

_RETRY_S = 0.1
_COALESCE_S = 0.05
_STOP_S = 30.0
_NAME_LIMIT = 300


def now_ms() -> int:
    """The wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last known state of an entity."""

    values: Mapping[AnyKey, float] = field(default_factory=dict)
    changed_at_ms: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Edits:
    """What a view adds to what is recorded; `refused` are nodes older than recorded, by path."""

    changes: list[QuotaChange] = field(default_factory=list)
    problems: list[NodeProblem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Ledger:
    """The state of all entities as recorded, and its difference to a view of ZooKeeper."""

    def __init__(self, changes: Iterable[QuotaChange], problems: Mapping[str, tuple[int, str]]) -> None:
        self._recorded: dict[AnyEntity, Recorded] = {}
        self._problems = dict(problems)
        # Versions that brought no edit of a quota (a password, the same value again) are in no table.
        self._seen: dict[AnyEntity, int] = {}
        for change in sorted(changes, key=lambda change: (change.changed_at_ms, change.version)):
            self._apply(change)

    def compare(self, view: View, observed_at_ms: int) -> Edits:
        """Edits in the view that are not recorded yet; from now on they are."""
        edits = Edits()
        names = name_nodes(view.nodes)
        for path, entity in names.entities.items():
            self._compare_node(path, entity, view.nodes[path], edits)
        for path, problem in names.problems.items():
            node = view.nodes[path]
            self._add_problem(NodeProblem(path, None, problem, node.changed_at_ms, node.version), edits)
        for path, problem in view.unreadable.items():
            self._add_unreadable(path, problem, observed_at_ms, edits)
        present = set(names.entities.values())
        for entity, recorded in self._recorded.items():
            if recorded.values and entity not in present and not view.is_hidden(str(entity)):
                self._compare_removed(entity, recorded, view.removed_at(str(entity)), observed_at_ms, edits)
        for change in edits.changes:
            self._apply(change)
        self._problems.update({found.node: (found.version, found.problem) for found in edits.problems})
        return edits

    def _compare_node(self, path: str, entity: AnyEntity, node: Node, edits: Edits) -> None:
        recorded = self._recorded.get(entity, Recorded())
        if node.version < max(recorded.version, self._seen.get(entity, 0)):
            edits.refused.append(path)
            return
        self._seen[entity] = node.version
        if node.payload.problem is not None:
            problem = node.payload.problem
            self._add_problem(NodeProblem(path, entity, problem, node.changed_at_ms, node.version), edits)
        for key in IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey:
            value, previous = node.payload.values.get(key), recorded.values.get(key)
            if key in node.payload.left_alone or _is_same(value, previous):
                continue
            # A deletion is recorded at our clock, which may be ahead of the server's: never before that.
            changed_at_ms = max(node.changed_at_ms, recorded.changed_at_ms)
            edits.changes.append(QuotaChange(entity, key, value, previous, changed_at_ms, node.version))

    def _compare_removed(
        self, entity: AnyEntity, recorded: Recorded, version: int, observed_at_ms: int, edits: Edits
    ) -> None:
        if version < max(recorded.version, self._seen.get(entity, 0)):
            # The parent has not changed since: this server has never had the node.
            edits.refused.append(str(entity))
            return
        # A deleted node has no mtime: the time of our observation has to do.
        changed_at_ms = max(observed_at_ms, recorded.changed_at_ms)
        edits.changes.extend(
            QuotaChange(entity, key, None, value, changed_at_ms, version)
            for key, value in recorded.values.items()
        )

    def _add_unreadable(self, path: str, problem: str, observed_at_ms: int, edits: Edits) -> None:
        entity = name_nodes([path] if has_data(path) else []).entities.get(path)
        version = self._recorded.get(entity, Recorded()).version if entity else 0
        self._add_problem(NodeProblem(path, entity, problem, observed_at_ms, version), edits)

    def _add_problem(self, found: NodeProblem, edits: Edits) -> None:
        found = replace(found, node=found.node[:_NAME_LIMIT])
        if self._problems.get(found.node) != (found.version, found.problem):
            _log.warning("quota node %r: %s", found.node, found.problem)
            edits.problems.append(found)

    def _apply(self, change: QuotaChange) -> None:
        before = self._recorded.get(change.entity, Recorded())
        values = {key: value for key, value in before.values.items() if key is not change.key}
        if change.value is not None:
            values[change.key] = change.value
        self._recorded[change.entity] = Recorded(values, change.changed_at_ms, change.version)


def _is_same(value: float | None, previous: float | None) -> bool:
    """Equal, where NaN (which a percentage can be) equals itself."""
    if value is None or previous is None:
        return value is previous
    return value == previous or (math.isnan(value) and math.isnan(previous))


class Watcher:
    """Watches the quotas of one cluster until stopped.

    Args:
        settings: where the quotas and the tables are.
        clock_ms: the wall clock; it should agree with ZooKeeper's, which stamps the edits.
    """

    def __init__(self, settings: Settings, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._tree: QuotaTree | None = None
        self._refused: frozenset[str] = frozenset()
        self._compared: View | None = None
        self._leaders = LeaderWatcher(settings, clock_ms)

    @property
    def is_following(self) -> bool:
        """Whether there is anything that can change: a quota file is read once."""
        return self._thread is not None or self._leaders.is_running

    def start(self) -> None:
        """Write the first snapshot, then go on in a thread.

        Raises:
            UserError: the source or the tables cannot be read; one line.
        """
        quotas = self._settings.quotas
        if quotas.source == "file" and not quotas.file:
            msg = "quotas.file: missing, expected the path of a quota file because quotas.source is file"
            raise UserError(msg)
        self._leaders.start()
        lag_ms = quotas.apply_lag if quotas.source == "zookeeper" else 0
        self._tables = RulesTables(
            self._settings.tables, self._settings.cluster_id, source=quotas.source, apply_lag_ms=lag_ms,
            storage=storage_options(self._settings),
        )  # fmt: skip
        if quotas.source == "file":
            self._written(
                lambda: self._tables.write_file(read_quota_file(Path(quotas.file)), self._clock_ms())
            )
            return
        self._tree = QuotaTree(quotas.zookeeper_connect, session_timeout_ms=quotas.session_timeout)
        try:
            self._tree.start(connect_timeout_ms=quotas.connect_timeout)
            self._ledger = Ledger(self._tables.changes, self._tables.problems)
            self._first_snapshot(self._tree)
        except BaseException:
            self._tree.stop()
            self._leaders.stop()
            raise
        self._thread = threading.Thread(target=self._run, args=(self._tree,), name="quota-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the ZooKeeper session; nothing if there is none."""
        self._leaders.stop()
        self._stopping.set()
        if self._tree is not None and self._thread is not None:
            self._tree.changed.set()
            self._thread.join(_STOP_S)
            self._tree.stop()
            self._thread = None

    def check(self) -> None:
        """Raise what ended a thread, if anything did."""
        self._leaders.check()
        if self._error is not None:
            raise self._error

    def _first_snapshot(self, tree: QuotaTree) -> None:
        deadline_s = time.monotonic() + self._settings.quotas.connect_timeout / 1_000
        while True:
            asked_at_ms = self._clock_ms()
            view = tree.read()
            if view is not None and not any(root in view.unreadable for root in REQUIRED_ROOTS):
                break
            if time.monotonic() > deadline_s:
                raise self._no_snapshot(view)
            tree.changed.wait(_RETRY_S)
        # Written even without an edit: what a crash between the two tables left behind is repaired here.
        self._record(view, asked_at_ms, is_first=True)

    def _no_snapshot(self, view: View | None) -> UserError:
        where = f"ZooKeeper {self._settings.quotas.zookeeper_connect}"
        if view is None:
            within_s = self._settings.quotas.connect_timeout / 1_000
            return UserError(f"{where} did not answer within {within_s:g} s: its quotas could not be read")
        reason = next(view.unreadable[root] for root in REQUIRED_ROOTS if root in view.unreadable)
        advice = "check the chroot in quotas.zookeeper_connect and the rights of its nodes"
        return UserError(f"{where}: {reason}: {advice}")

    def _run(self, tree: QuotaTree) -> None:
        interval_s = self._settings.quotas.known_through_interval / 1_000
        try:
            while not self._stopping.is_set():
                tree.changed.wait(interval_s)
                # Edits come in bursts, and every write of the tables takes all that have come.
                if self._stopping.wait(_COALESCE_S):
                    break
                asked_at_ms = self._clock_ms()
                view = tree.read()
                if view is not None:
                    self._record(view, asked_at_ms, is_first=False)
        except BaseException as error:  # handed to the thread that calls check()
            _log.error("the quota watch has ended: %s", type(error).__name__)
            self._error = error

    def _record(self, view: View, asked_at_ms: int, *, is_first: bool) -> None:
        """Write what is new; unless something is hidden, all edits before `asked_at_ms` are in the view."""
        observed_at_ms = self._clock_ms()
        edits = Edits()
        if view is not self._compared:
            edits = self._ledger.compare(view, observed_at_ms)
            self._warn(edits)
            self._compared = view
        is_complete = not view.unreadable and not self._refused
        known_through_ms = asked_at_ms if is_complete else None
        if edits.changes or edits.problems or is_first:
            self._written(lambda: self._tables.append(edits.changes, edits.problems, observed_at_ms))
            self._written(lambda: self._tables.write_rules(known_through_ms))
        elif known_through_ms is not None:
            self._written(lambda: self._tables.write_known_through(known_through_ms))

    def _warn(self, edits: Edits) -> None:
        refused = frozenset(edits.refused)
        if new := sorted(refused - self._refused):
            _log.error(
                "ZooKeeper shows %d quota nodes older than recorded (first: %r): the recorded ones are kept, "
                "and nothing after them is known. Was its data lost?", len(new), new[0][:_NAME_LIMIT]
            )  # fmt: skip
        self._refused = refused
        known_through_ms = self._tables.known_through_ms or 0
        late_ms = max((known_through_ms - change.changed_at_ms for change in edits.changes), default=0)
        if late_ms > 0 and known_through_ms:
            _log.warning(
                "an edit came %d ms after its time was said to be known: the clocks of this machine and of "
                "ZooKeeper differ, or it could not be read before", late_ms
            )  # fmt: skip

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (DeltaError, OSError) as error:
            reason = str(error).partition("\n")[0]
            msg = f"{self._settings.tables}: the quota tables cannot be written: {reason}"
            raise UserError(msg) from error
