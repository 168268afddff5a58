"""The period of an agreement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Span:
    """A period from `from_ms` until `to_ms`, exclusive, epoch ms; None is no bound."""

    from_ms: int | None = None
    to_ms: int | None = None

    def holds_day(self, day: date) -> bool:
        """Whether the whole UTC day is inside."""
        start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1_000)
        is_after = self.from_ms is None or self.from_ms <= start_ms
        return is_after and (self.to_ms is None or start_ms + DAY_MS <= self.to_ms)


ALWAYS = Span()
