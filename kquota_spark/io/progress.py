"""What a streaming query has done so far, from its own progress reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(slots=True)
class Progress:
    """Rows read and time spent; the first micro-batch apart, because it also compiles the plan."""

    rows: int = 0
    batch_s: float = 0.0
    first_rows: int = 0
    first_s: float = 0.0
    last_batch: int = -1

    def update(self, query: StreamingQuery) -> None:
        """Add the reports that have not been counted yet."""
        for report in query.recentProgress:
            if report["batchId"] <= self.last_batch:
                continue
            self.last_batch = report["batchId"]
            rows, seconds = report["numInputRows"], report["durationMs"].get("triggerExecution", 0) / 1_000
            if self.rows == 0 and rows:
                self.first_rows, self.first_s = rows, seconds
            self.rows += rows
            self.batch_s += seconds

    @property
    def warm_rows_per_s(self) -> float | None:
        """Rows per second after the first micro-batch that had any; None if there was no other."""
        rows, seconds = self.rows - self.first_rows, self.batch_s - self.first_s
        return rows / seconds if rows and seconds else None

    def __str__(self) -> str:
        """`2,000,000 rows read in 31.4 s (71,200 a second after the first batch)`."""
        warm = self.warm_rows_per_s
        tail = "" if warm is None else f" ({warm:,.0f} a second after the first batch)"
        return f"{self.rows:,} rows read in {self.batch_s:.1f} s{tail}"
