"""What a finding is: something wrong with a cluster's quotas or their clients, with the rows that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kinds of findings; the value is what outputs and `--kind` carry."""

    IGNORES_THROTTLE = "IGNORES_THROTTLE"
    THROTTLE_BEYOND_TIMEOUT = "THROTTLE_BEYOND_TIMEOUT"
    STARVED = "STARVED"
    SHARE_FETCH = "SHARE_FETCH"
    UNMETERED = "UNMETERED"
    EMPTY_CLIENT_ID = "EMPTY_CLIENT_ID"
    SHARED_BUCKET = "SHARED_BUCKET"
    UNSTABLE_CLIENT_ID = "UNSTABLE_CLIENT_ID"
    DEAD_RULE = "DEAD_RULE"
    SHADOWED_RULE = "SHADOWED_RULE"
    MISENCODED_ENTITY = "MISENCODED_ENTITY"
    MIXED_IDENTIFICATION = "MIXED_IDENTIFICATION"
    QUOTA_EDIT = "QUOTA_EDIT"


class Severity(Enum):
    """How much it matters: a quota that does not hold is high, what may surprise is a warning."""

    HIGH = "high"
    WARNING = "warning"
    INFO = "info"


Evidence = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: about whom, one sentence with its numbers and thresholds, what to do, and the rows behind it.

    Texts hold names as clients sent them; escaping is for whoever prints them.
    """

    kind: Kind
    severity: Severity
    subject: str
    sentence: str
    advice: str
    evidence: tuple[Evidence, ...] = ()


def client_text(user: str, client_id: str) -> str:
    """A client for people: an empty id must not look like none."""
    return f"user {user}, client id {client_id or '(empty)'}"
