"""One finding of `kquota doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How bad it is: `fail` makes the command exit with 2."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that was looked at: what, what was seen, and what to do about it (empty when all is well)."""

    status: Status
    what: str
    evidence: str
    advice: str = ""


def ok(what: str, evidence: str) -> Check:
    """All is well."""
    return Check(Status.OK, what, evidence)


def warn(what: str, evidence: str, advice: str) -> Check:
    """Something to look at; results are still right or say where they are not."""
    return Check(Status.WARN, what, evidence, advice)


def fail(what: str, evidence: str, advice: str) -> Check:
    """Results are wrong, or the audit cannot run."""
    return Check(Status.FAIL, what, evidence, advice)
