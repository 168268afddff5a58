"""Whether the clock of this machine is behind that of the brokers: then it must not set their lines aside quietly.

One broker that is ahead has a wrong clock itself, and only its lines wait. If most are, the wrong clock is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kquota_spark.audit.task_reports import Ahead, TaskReport
from kquota_spark.errors import UserError
from kquota_spark.store.reading import utc_text


class OwnClock:
    """Votes of brokers: each by its lines in the newest micro-batch that had any."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ahead_of: dict[int, list[Ahead]] = {}
        self._set_aside: list[Ahead] = []
        """By a clock that is behind: lines of most brokers, and all that were set aside after them."""

    def add(self, reports: Iterable[TaskReport], begun_ms: int) -> None:
        """Take what the tasks of one micro-batch report.

        One that runs again sets the same lines aside, by the time that it had at first. If that time was wrong and the
        clock is right now, it is said which lines those are.

        Args:
            reports: one a task and table.
            begun_ms: when it began, by our clock now: lines of which that time has come are not ahead of it.
        """
        told = list(reports)
        ahead = [each for report in told for each in report.ahead]
        still = [each for each in ahead if each.to_ms > begun_ms]
        past = [each for each in ahead if each.to_ms <= begun_ms]
        self._ahead_of.update({broker_id: [] for report in told for broker_id in report.heard})
        for each in still:
            self._ahead_of.setdefault(each.broker_id, []).append(each)
        votes = [lines for lines in self._ahead_of.values() if lines]
        if self._set_aside:
            self._set_aside += ahead
        elif still and 2 * len(votes) > len(self._ahead_of):
            self._set_aside = [*past, *(each for lines in votes for each in lines)]
        elif past:
            named = ", ".join(map(str, sorted(_brokers(past))))
            self._say(
                f"warning: lines of broker {named} were set aside while the clock of this machine was behind, or "
                f"theirs ahead: judge them by {_restate(past)}"
            )

    def require(self) -> None:
        """Check that most brokers agree with this clock.

        Raises:
            UserError: it is behind.
        """
        if self._set_aside:
            raise UserError(
                f"lines of {len(_brokers(self._set_aside))} of {len(self._ahead_of)} brokers are ahead of the clock of "
                "this machine, so it is behind: set it (NTP) and start again; lines that were set aside are judged by "
                f"{_restate(self._set_aside)}"
            )


def _brokers(lines: Sequence[Ahead]) -> set[int]:
    return {each.broker_id for each in lines}


def _restate(lines: Sequence[Ahead]) -> str:
    from_ms, to_ms = min(each.from_ms for each in lines), max(each.to_ms for each in lines)
    return f"kquota restate --from '{utc_text(from_ms)}' --to '{utc_text(to_ms + 1_000)}'"
