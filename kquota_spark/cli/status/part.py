"""One part of the installation: its state, and the command to run if it is not well."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kquota_spark.cli.options import DEFAULT_CONFIG, SettingsPlace
from kquota_spark.process.check import Check, Status


class State(Enum):
    """The state of a part, the worst last; `off` means that the part is not set up, which is fine."""

    OK = "ok"
    OFF = "off"
    WARN = "warn"
    FAIL = "fail"

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to do."""
        return self in (State.OK, State.OFF)


_ORDER = list(State)
_OF_CHECKS = {Status.OK: State.OK, Status.WARN: State.WARN, Status.FAIL: State.FAIL}


@dataclass(frozen=True, slots=True)
class Part:
    """A line of the screen."""

    part: str
    state: State
    figure: str
    as_of_ms: int | None = None
    """Time of the figure, epoch ms; None if it has no time."""
    next: str = ""
    """The command to run; empty if all is well."""
    follows: str = ""
    """The part that has to be mended first, because this one is not well only for that reason; empty for none."""

    def because(self, cause: Part) -> Part:
        """This part, as one that is not well only because of another; it needs no command of its own."""
        return replace(self, next=cause.next, follows=cause.part)


def command_text(words: str, place: SettingsPlace) -> str:
    """`kquota WORDS` with the options that name the same settings."""
    given = [f"--config {shlex.quote(os.fspath(place.config))}"] if place.config else []
    given += [f"--tables {shlex.quote(place.tables)}"] if place.tables else []
    return " ".join(["kquota", words, *given])


def audit_text(place: SettingsPlace) -> str:
    """The command that starts the audit, which takes no --tables."""
    config = place.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    return command_text("audit", SettingsPlace(config, None))


def worst(checks: Sequence[Check]) -> Check:
    """The first of the worst checks; at least one check is needed."""
    return max(checks, key=lambda check: _ORDER.index(_OF_CHECKS[check.status]))


def part_of(part: str, checks: Sequence[Check], as_of_ms: int | None, then: str) -> Part:
    """A part made from checks.

    Args:
        part: its name.
        checks: at least one; the worst gives state and figure.
        as_of_ms: their time, epoch ms; None without a time.
        then: the command to run if one of them is not well.
    """
    check = worst(checks)
    state = _OF_CHECKS[check.status]
    return Part(part, state, check.evidence, as_of_ms, "" if state.is_well else then)


def following(parts: Sequence[Part]) -> list[Part]:
    """The parts, with `follows` on those that are late only because the job does not run.

    Args:
        parts: all parts.
    """
    job = next((part for part in parts if part.part == "job"), None)
    if job is None or job.state is not State.FAIL or job.follows:
        return list(parts)
    return [
        part.because(job) if part.part in ("lag", "sources") and not part.state.is_well else part
        for part in parts
    ]
