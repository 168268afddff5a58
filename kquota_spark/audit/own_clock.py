"""Checks whether the clock of this machine is behind those of the brokers: then lines must not be set aside silently.

If one broker is ahead, its own clock is wrong, and only its lines are set aside. If most brokers are ahead, this
machine has the wrong clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kquota_spark.audit.task_reports import Ahead, TaskReport
from kquota_spark.errors import UserError
from kquota_spark.store.reading import utc_text


class OwnClock:
    """Votes of the brokers; the lines of a broker in the newest micro-batch that has some are its vote."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._ahead_of: dict[int, list[Ahead]] = {}
        self._set_aside: list[Ahead] = []
        """Lines that a clock behind has set aside: those of most brokers, and all that were set aside later."""

    def add(self, reports: Iterable[TaskReport], begun_ms: int) -> None:
        """Add the reports of the tasks of one micro-batch.

        A micro-batch that runs again sets the same lines aside, by the time of its first attempt. If that time was
        wrong and the clock is right now, a warning names the brokers and the command that judges these lines.

        Args:
            reports: one per task and table.
            begun_ms: start of this attempt by the clock of this machine, epoch ms; lines up to it are not ahead.
        """
        received = list(reports)
        ahead = [each for report in received for each in report.ahead]
        still = [each for each in ahead if each.to_ms > begun_ms]
        past = [each for each in ahead if each.to_ms <= begun_ms]
        self._ahead_of.update({broker_id: [] for report in received for broker_id in report.heard})
        for each in still:
            self._ahead_of.setdefault(each.broker_id, []).append(each)
        votes = [lines for lines in self._ahead_of.values() if lines]
        if self._set_aside:
            self._set_aside += ahead
        elif still and 2 * len(votes) > len(self._ahead_of):
            self._set_aside = [*past, *(each for lines in votes for each in lines)]
        elif past:
            named = ", ".join(map(str, sorted(_brokers(past))))
            self._notice(
                f"warning: lines of broker {named} were set aside while the clock of this machine was behind, or "
                f"theirs ahead: judge them by {_restate(past)}"
            )

    def require(self) -> None:
        """Check that most brokers agree with this clock.

        Raises:
            UserError: the clock of this machine is behind.
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
