"""The age of the newest second of `decisions`, and whether the tables are too old to be called live.

`kquota top`, `/live` of `kquota serve` and `kquota status` decide by this rule alone.
"""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Stream
from kquota_spark.store.reading import utc_text

_SLACK_MS = 30_000
_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))


class Age(NamedTuple):
    """The newest second, and how old it is."""

    newest_ms: int
    """Its start, epoch ms."""
    age_ms: int
    """Time since then, ms; 0 if the second is ahead of this clock."""
    is_stale: bool
    """Whether the second is older than running jobs leave it."""

    @property
    def ago_text(self) -> str:
        """The age as `63 min ago`."""
        return f"{length_text(self.age_ms)} ago"

    @property
    def stale_text(self) -> str:
        """The first line of an answer that is stale; empty for a live one."""
        if not self.is_stale:
            return ""
        return f"STALE: newest second {self.ago_text} ({utc_text(self.newest_ms)})"


def stale_after_ms(stream: Stream) -> int:
    """Maximum age of the newest second while the job keeps up, ms.

    Args:
        stream: the job's trigger interval and allowed lateness.
    """
    # A second is judged when no more lines can arrive, in the micro-batch after the one that shows this.
    return stream.allowed_lateness + 6 * stream.trigger + _SLACK_MS


def age_of(newest_ms: int, now_ms: int, most_ms: int) -> Age:
    """The age of a second.

    Args:
        newest_ms: start of the newest second, epoch ms.
        now_ms: epoch ms.
        most_ms: `stale_after_ms`.
    """
    age_ms = max(now_ms - newest_ms, 0)
    return Age(newest_ms, age_ms, now_ms - newest_ms > most_ms)


def length_text(length_ms: int) -> str:
    """A length in whole seconds, minutes, hours or days: `14 s`, `63 min`, `5 days`."""
    seconds = length_ms // 1_000
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds // length:,} {unit}"
    return f"{seconds} s"
