"""What is known of the world when a change is planned or sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota_spark.enforce.changes import Quota


@dataclass(frozen=True, slots=True)
class Situation:
    """How fresh and how whole our view is; times in epoch ms, None where nothing is known."""

    decided_through_ms: int | None
    """Newest second that decisions hold for every broker."""
    rules_known_through_ms: int | None
    is_view_whole: bool
    """All quota nodes could be read, and all brokers were heard of."""
    problems: tuple[str, ...] = ()
    """Why it is not whole, for people."""
    edited_at_ms: Mapping[Quota, int] = field(default_factory=dict)
    """Newest edit of a quota that the watch has seen."""
