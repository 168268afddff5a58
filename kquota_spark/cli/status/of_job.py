"""The audit job: whether it runs, and since when it does not.

Three things answer, the surest first:

* the lock of a local checkpoint, which the operating system releases when the process dies;
* the lease on an object store, which a driver releases when it ends;
* rows that arrive: another machine may run the job with its own checkpoints.
"""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.checkpoints.driver_lock import driver_pid, is_driver_running, last_commit_ms
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.status.part import Part, State, audit_text, command_text
from kquota_spark.config.settings import Settings
from kquota_spark.process.check import Check, Status

_PART = "job"
_QUERIES = (LOG, JMX)


class Arrived(NamedTuple):
    """What the tables hold of the job's input and results; times in epoch ms, None without rows."""

    reading: Check | None
    """Whether new input arrives; None without any input."""
    input_ms: int | None
    """The newest line or sample."""
    decision_ms: int | None
    """The newest second of `decisions`."""


def job_part(settings: Settings, arrived: Arrived, released_ms: int | None, place: SettingsPlace) -> Part:
    """The job; its time is that of the newest decision, or when the job stopped.

    Args:
        settings: where the checkpoints are.
        arrived: of the tables.
        released_ms: when the last driver released its lease on an object store, epoch ms; None if it did not.
        place: the settings as the caller named them, for the next command.
    """
    newest_ms = arrived.decision_ms
    if (query := running_query(settings)) is not None:
        pid = driver_pid(settings.checkpoints, query)
        if _is_ok(arrived.reading):
            return Part(_PART, State.OK, f"reads; process {pid}", newest_ms)
        figure = f"process {pid} runs, and reads nothing new"
        return Part(_PART, State.WARN, figure, newest_ms, command_text("doctor", place))
    stopped_ms = released_ms if released_ms is not None else _stopped_ms(settings)
    is_stopped = stopped_ms is not None and (arrived.input_ms or 0) <= stopped_ms
    if _is_ok(arrived.reading) and not is_stopped:
        return Part(_PART, State.OK, "reads, on another machine", newest_ms)
    figure = "has stopped" if is_stopped else "does not run here, and nothing new is read"
    return Part(_PART, State.FAIL, figure, stopped_ms if is_stopped else newest_ms, audit_text(place))


def running_query(settings: Settings) -> str | None:
    """The first set of queries that a process runs with these checkpoints; None if no process is known."""
    return next((name for name in _QUERIES if is_driver_running(settings.checkpoints, name)), None)


def _stopped_ms(settings: Settings) -> int | None:
    """When the last micro-batch of a stopped job ended: nobody holds its lock. None if no job stopped here."""
    ended = [name for name in _QUERIES if is_driver_running(settings.checkpoints, name) is False]
    times = [last_commit_ms(settings.checkpoints, name) for name in ended]
    return max((time_ms for time_ms in times if time_ms is not None), default=None)


def _is_ok(check: Check | None) -> bool:
    return check is not None and check.status is Status.OK
