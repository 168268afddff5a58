"""The texts in which the comments of `kquota review` and `kquota migration` differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_DELAY = "The delay is the sum of the throttle times of all recorded requests, by replay"


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of one command."""

    command: str
    titles: Mapping[int, str]
    """The headline by exit code."""
    verdicts: Mapping[int, str]
    """The verdict for programs by exit code."""
    edits: str
    """Title of the table of rules."""
    nobody: str
    """How a sentence about clients without a difference ends."""
    note: str
    has_flips: bool = False
    """Whether the table of clients counts requests with another verdict."""


REVIEW = Wording(
    "kquota review",
    {
        0: "Quota change: no harm in the recorded traffic",
        2: "Quota change: a person must decide",
        3: "Quota change: harm above the budget",
    },
    {0: "harmless", 2: "person", 3: "harm"},
    "Changed rules",
    "gets another limit",
    f"Limits hold per broker. {_DELAY} under the old and the new rules. Real clients send later if they are throttled, "
    "so after a cut it is an upper bound.",
)
MIGRATION = Wording(
    "kquota migration",
    {0: "Migration check: pass", 2: "Migration check: needs a person", 3: "Migration check: stop"},
    {0: "pass", 2: "person", 3: "stop"},
    "Rules that differ",
    "gets another limit, bucket or verdict",
    f"Limits hold per broker. {_DELAY} before and after. Real clients send later if they are throttled, so a delay "
    "that grows is an upper bound (≤). A request has another verdict if only one side throttles it.",
    has_flips=True,
)
