"""When a quota left its declared value, and who edited it last, from the history of its values.

The watched source shows the edit. The requests that brokers logged, and the enforcement's own log, show who made it.
Neither refers to the other, so they are joined by entity, key, value and time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import AnyKey
from kquota_spark.model.quotas.rules import QuotaChange

REQUEST_SLACK_MS = 5_000
"""Longest time (ms) between an AlterClientQuotas request in a broker's log and its edit: two machines' clocks."""
PLAN_SLACK_MS = 600_000
"""Longest time (ms) from an entry in the enforcement's log, which has the time of its turn, to the edit.

The edits of a large plan come later than that time.
"""


class Editor(NamedTuple):
    """A possible author of an edit: a client of the brokers, or a policy of the enforcement, that set this value."""

    entity: AnyEntity
    key: AnyKey
    value: float | None
    time_ms: int
    name: str
    client_id: str | None = None
    policy: str | None = None

    @property
    def slack_ms(self) -> int:
        """How much earlier than the edit its time may be (ms)."""
        return REQUEST_SLACK_MS if self.policy is None else PLAN_SLACK_MS


class Drift(NamedTuple):
    """A value that is not the declared one.

    `since` is the edit by which the value left the declared one, None if it never had that in the known history.
    `last` is the edit that set the present value, None if the watch did not see it. `editor` is the author of `last`.
    """

    edit: QuotaEdit
    since: QuotaChange | None
    last: QuotaChange | None
    editor: Editor | None = None


def drifts(edits: Iterable[QuotaEdit], changes: Iterable[QuotaChange]) -> list[Drift]:
    """The drifts of the edits that lead from the declared quotas (`before`) to the present ones (`after`).

    Each has the time of its changes, and no editor yet.
    """
    history: dict[tuple[AnyEntity, AnyKey], list[QuotaChange]] = {}
    for change in changes:
        history.setdefault((change.entity, change.key), []).append(change)
    found = []
    for edit in edits:
        of_key = sorted(
            history.get((edit.entity, edit.key), ()), key=lambda change: (change.latest_ms, change.version)
        )
        last = of_key[-1] if of_key and of_key[-1].value == edit.after else None
        found.append(Drift(edit, None if last is None else _since(of_key, edit.before), last))
    return found


def _since(of_key: Sequence[QuotaChange], declared: float | None) -> QuotaChange | None:
    """The edit after the last time at which the value was the declared one."""
    for change, following in zip(reversed(of_key[:-1]), reversed(of_key[1:]), strict=True):
        if change.value == declared:
            return following
    return of_key[0] if of_key[0].previous == declared else None


def with_editors(found: Iterable[Drift], editors: Iterable[Editor]) -> list[Drift]:
    """The drifts, each with the editor of its last edit.

    Candidates are those that set exactly this value within the slack. The enforcement comes first, then the latest.
    """
    by_value: dict[tuple[AnyEntity, AnyKey, float | None], list[Editor]] = {}
    for editor in editors:
        by_value.setdefault((editor.entity, editor.key, editor.value), []).append(editor)
    return [drift._replace(editor=_editor(drift, by_value)) for drift in found]


def _editor(
    drift: Drift, by_value: Mapping[tuple[AnyEntity, AnyKey, float | None], Sequence[Editor]]
) -> Editor | None:
    if drift.last is None:
        return None
    last = drift.last
    near = [
        editor
        for editor in by_value.get((drift.edit.entity, drift.edit.key, drift.edit.after), ())
        if last.changed_at_ms - editor.slack_ms <= editor.time_ms <= last.latest_ms + REQUEST_SLACK_MS
    ]
    # The enforcement's edits are also requests, under its own login. Its log contains more, so it comes first.
    return max(near, key=lambda editor: (editor.policy is not None, editor.time_ms), default=None)
