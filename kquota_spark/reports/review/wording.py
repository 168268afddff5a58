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
    is_open_loop: bool = False
    """Whether requests keep their times: the table then counts those with another verdict, beside the closed loop."""


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
    f"Limits hold per broker. {_DELAY} under the old and the new rules. The closed loop decides: each connection waits "
    "for its throttles and keeps its own pace. Its bound covers what the log leaves open. In the open loop requests "
    "keep their recorded times.",
)
MIGRATION = Wording(
    "kquota migration",
    {0: "Migration check: pass", 2: "Migration check: needs a person", 3: "Migration check: stop"},
    {0: "pass", 2: "person", 3: "stop"},
    "Rules that differ",
    "gets another limit, bucket or verdict",
    f"Limits hold per broker. {_DELAY} before and after. Real clients send later if they are throttled, so a delay "
    "that grows is an upper bound (≤). If clients wait for their throttles and keep their own pace, the delay after is "
    "that of the last but one column, with its bound. A request has another verdict if only one side throttles it.",
    is_open_loop=True,
)
