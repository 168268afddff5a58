"""When a quota left what was declared, and who edited it last, by the history of its values.

An edit is known from the source that was watched; who made it from the requests that brokers logged and from the
enforcement's own log. Neither names the other: they are joined by entity, key, value and time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import AnyKey

REQUEST_SLACK_MS = 5_000
"""Between an AlterClientQuotas request in a broker's log and the edit that it made: clocks of two machines."""
PLAN_SLACK_MS = 600_000
"""The enforcement's log has the time of its turn; the edits of a large plan come later."""


class Change(NamedTuple):
    """One edit that the watch saw; between `at_ms` and `before_ms` where the source is polled."""

    entity: AnyEntity
    key: AnyKey
    value: float | None
    previous: float | None
    at_ms: int
    before_ms: int | None
    version: int

    @property
    def until_ms(self) -> int:
        """The latest moment at which it can have come."""
        return self.at_ms if self.before_ms is None else self.before_ms


class Editor(NamedTuple):
    """Somebody who set a key to a value about then: a client of the brokers, or a policy of the enforcement."""

    entity: AnyEntity
    key: AnyKey
    value: float | None
    time_ms: int
    name: str
    client_id: str | None = None
    policy: str | None = None

    @property
    def slack_ms(self) -> int:
        """How much earlier than the edit its time may be."""
        return REQUEST_SLACK_MS if self.policy is None else PLAN_SLACK_MS


class Drift(NamedTuple):
    """A value that is not the declared one.

    `since` is the edit by which it left that, None if it never was so within what is known; `last` the one that made
    the present value, None if the watch has not seen it; `editor` who made that.
    """

    edit: QuotaEdit
    since: Change | None
    last: Change | None
    editor: Editor | None = None


def drifts(edits: Iterable[QuotaEdit], changes: Iterable[Change]) -> list[Drift]:
    """Edits from what is declared (`before`) to what is there (`after`), with when they came; nothing yet of who."""
    history: dict[tuple[AnyEntity, AnyKey], list[Change]] = {}
    for change in changes:
        history.setdefault((change.entity, change.key), []).append(change)
    found = []
    for edit in edits:
        of_key = sorted(
            history.get((edit.entity, edit.key), ()), key=lambda change: (change.until_ms, change.version)
        )
        last = of_key[-1] if of_key and of_key[-1].value == edit.after else None
        found.append(Drift(edit, None if last is None else _since(of_key, edit.before), last))
    return found


def _since(of_key: Sequence[Change], declared: float | None) -> Change | None:
    """The edit after the last moment at which the value was the declared one."""
    for change, following in zip(reversed(of_key[:-1]), reversed(of_key[1:]), strict=True):
        if change.value == declared:
            return following
    return of_key[0] if of_key[0].previous == declared else None


def with_editors(found: Iterable[Drift], editors: Iterable[Editor]) -> list[Drift]:
    """The drifts with who made the last edit: of those who set this very value about then, the nearest before it."""
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
        if last.at_ms - editor.slack_ms <= editor.time_ms <= last.until_ms + REQUEST_SLACK_MS
    ]
    # The enforcement's edits are requests as well, of its own login: its log says more.
    return max(near, key=lambda editor: (editor.policy is not None, editor.time_ms), default=None)
