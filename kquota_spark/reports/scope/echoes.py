"""One change of a quota leaves several records; this decides which of them belong together.

Enforcement writes a step to its log, and then the watcher sees the same value in the cluster. That edit is an echo.
"""

from __future__ import annotations

from typing import NamedTuple

ECHO_MS = 60_000
"""Maximum time (ms) between an enforcement step and an edit that is its echo."""


class QuotaSet(NamedTuple):
    """A quota that got a value."""

    at_ms: int
    """Epoch ms."""
    entity: str
    key: str
    value: float | None
    """The new value, per second; None if the quota was removed."""


def is_echo(edit: QuotaSet, step: QuotaSet) -> bool:
    """Whether an edit that the watcher saw is the record of a step of enforcement.

    Args:
        edit: from `quota_changes`.
        step: applied or restored, from `enforcement_log`.
    """
    is_same = (edit.entity, edit.key, edit.value) == (step.entity, step.key, step.value)
    return is_same and abs(step.at_ms - edit.at_ms) <= ECHO_MS
