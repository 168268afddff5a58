"""Findings: problems of a cluster's quotas or their clients, with the rows that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kinds of findings; outputs and `--kind` use the value."""

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
    """How much a finding matters: a quota that does not hold is high, a possible surprise is a warning."""

    HIGH = "high"
    WARNING = "warning"
    INFO = "info"


Evidence = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its subject, one sentence with numbers and thresholds, advice, and the rows of evidence.

    Texts contain names as clients sent them; the code that prints them must escape them.
    """

    kind: Kind
    severity: Severity
    subject: str
    sentence: str
    advice: str
    evidence: tuple[Evidence, ...] = ()


def client_text(user: str, client_id: str) -> str:
    """The name of a client in texts, which shows an empty client id as such."""
    return f"user {user}, client id {client_id or '(empty)'}"
