"""Whether the clock of this machine is behind that of the brokers: then it must not set their lines aside quietly.

One broker that is ahead has a wrong clock itself, and only its lines wait. If most are, the wrong clock is ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from kquota_spark.audit.task_reports import TaskReport
from kquota_spark.errors import UserError
from kquota_spark.store.reading import utc_text


class OwnClock:
    """Votes of brokers: each by its lines in the newest micro-batch that had any."""

    def __init__(self) -> None:
        self._is_ahead: dict[int, bool] = {}
        self._problem: str | None = None

    def add(self, reports: Iterable[TaskReport]) -> None:
        """Take what the tasks of one micro-batch report."""
        ahead = [each for report in reports for each in report.ahead]
        self._is_ahead.update({broker_id: False for report in reports for broker_id in report.heard})
        self._is_ahead.update({each.broker_id: True for each in ahead})
        brokers = sorted(broker_id for broker_id, is_ahead in self._is_ahead.items() if is_ahead)
        if self._problem is None and ahead and 2 * len(brokers) > len(self._is_ahead):
            from_ms, to_ms = min(each.from_ms for each in ahead), max(each.to_ms for each in ahead)
            self._problem = (
                f"lines of {len(brokers)} of {len(self._is_ahead)} brokers are ahead of the clock of this machine, so "
                "it is behind: set it (NTP) and start again; lines that were set aside are judged by kquota restate "
                f"--from '{utc_text(from_ms)}' --to '{utc_text(to_ms + 1_000)}'"
            )

    def require(self) -> None:
        """Check that most brokers agree with this clock.

        Raises:
            UserError: it is behind.
        """
        if self._problem is not None:
            raise UserError(self._problem)
