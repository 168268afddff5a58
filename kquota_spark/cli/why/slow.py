"""`kquota slow`: which client slowed the others on a broker, without any quota."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, add_config_option, add_form_option, only
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.process.notices import spaced_notice
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.model.interference.suspects import SlowBroker, Waited
    from kquota_spark.reports.slow.reading import ReadLines

COMMANDS = {
    "slow": (
        "answers",
        "which client slowed a broker for the others: their waiting times against its work",
        "kquota slow --since 10m",
        "kquota slow broker-1/kafka-request.log --since 2026-11-21T20:04:00Z",
    ),
}

_DEFAULT_MS = 600_000
_PROGRESS_EVERY_S = 2.0
_COLUMNS = (
    "broker_id", "role", "user", "client_id", "is_named", "correlation", "handler_share_percent",
    "usual_handler_share_percent", "busy_threads", "slow_seconds", "seconds", "requests", "waited_usual_ms",
    "waited_slow_ms", "waited_median_before_ms",
    "waited_median_ms", "waited_p95_before_ms", "waited_p95_ms", "cure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Own:
    """The options that no other command has."""

    logs: Sequence[Path] = option(
        "logs",
        "request log, plain or .gz, instead of the log topic",
        default=(),
        nargs="*",
        type=Path,
        metavar="LOG",
    )


def _find(asked: Asked) -> Found:
    """The victims and the suspects of each broker.

    Raises:
        UserError: the topic or the files cannot be read, or have no requests of the period.
    """
    from kquota_spark.cli.why.slow_page import print_broker, print_read
    from kquota_spark.model.interference.suspects import slow_broker

    read = _read(asked)
    found = {broker_id: slow_broker(windows) for broker_id, windows in sorted(read.brokers.items())}

    def page(out: Any) -> None:
        for broker_id, one in found.items():
            print_broker(out, broker_id, one, read.period)
            out.line()
        print_read(out, read)

    return Found(
        _COLUMNS,
        [row for broker_id, one in found.items() for row in _rows(broker_id, one)],
        page=page,
        envelope=_envelope(read, found),
        is_limited=True,
    )


def _read(asked: Asked) -> ReadLines:
    from kquota_spark.reports.slow.reading import Period, of_files, of_topic

    wanted, progress = asked.wanted, spaced_notice(_PROGRESS_EVERY_S)
    since, until = (None if one is None else one.time_ms for one in (wanted.since, wanted.until))
    if asked.own.logs:
        read = of_files(asked.settings, asked.own.logs, (since, until), wanted.broker, progress)
    else:
        until = now_ms() if until is None else until
        since = until - _DEFAULT_MS if since is None else since
        if since >= until:
            raise UserError(f"--since {utc_text(since)} is not before the end, {utc_text(until)}")
        read = of_topic(asked.settings, Period(since, until), wanted.broker, progress)
    if not any(windows.requests for windows in read.brokers.values()):
        of_broker = "" if wanted.broker is None else f" of broker {wanted.broker}"
        raise UserError(
            f"no request{of_broker} from {utc_text(read.period.from_ms)} to {utc_text(read.period.until_ms)} in "
            f"{read.lines:,} lines ({read.unreadable:,} unreadable): check --since, --until and the log's time zone"
        )
    return read


def _rows(broker_id: int, one: SlowBroker) -> Iterator[dict[str, Any]]:
    """A row per suspect and per victim."""
    from kquota_spark.reports.slow.cures import cure_command

    empty = {"broker_id": broker_id, **dict.fromkeys(_COLUMNS[1:])}
    for suspect in one.suspects:
        yield empty | {
            "role": "suspect",
            "user": suspect.client[0],
            "client_id": suspect.client[1],
            "is_named": suspect.is_named,
            "correlation": round(suspect.correlation, 3),
            "handler_share_percent": round(100 * suspect.share, 1),
            "usual_handler_share_percent": round(100 * suspect.usual_share, 1),
            "busy_threads": round(suspect.busy_threads, 2),
            "cure": cure_command(suspect) if suspect.is_named else None,
        }
    for victim in one.victims:
        yield empty | {
            "role": "victim",
            "user": victim.client[0],
            "client_id": victim.client[1],
            "slow_seconds": victim.slow_windows * one.width_ms // 1_000,
            "seconds": victim.windows * one.width_ms // 1_000,
            "requests": victim.requests,
            "waited_usual_ms": _rounded(victim.usual_ms),
            "waited_slow_ms": _rounded(victim.slow_ms),
            **_waited(victim.before, victim.during),
        }


def _waited(before: Waited, during: Waited) -> dict[str, float | None]:
    return {
        "waited_median_before_ms": _rounded(before.median_ms),
        "waited_median_ms": _rounded(during.median_ms),
        "waited_p95_before_ms": _rounded(before.p95_ms),
        "waited_p95_ms": _rounded(during.p95_ms),
    }


def _rounded(value_ms: float | None) -> float | None:
    return None if value_ms is None else float(f"{value_ms:.3g}")


def _envelope(read: ReadLines, found: dict[int, SlowBroker]) -> dict[str, Any]:
    from kquota_spark.formats.text.person_units import iso_time

    period = read.period
    return {
        "since": iso_time(period.since_ms),
        "until": iso_time(period.until_ms),
        "usual_from": iso_time(period.from_ms),
        "lines": read.lines,
        "unreadable": read.unreadable,
        "brokers": [
            {
                "broker_id": broker_id,
                "slow_seconds": one.slow_windows * one.width_ms // 1_000,
                "seconds": one.windows * one.width_ms // 1_000,
                **_waited(one.before, one.during),
            }
            for broker_id, one in found.items()
        ],
    }


QUESTION = Question(
    command="slow",
    table=None,
    find=_find,
    options=only(broker="only this broker; with LOG the broker of the files"),
    declared=_Own,
    period=PeriodOptions(
        f"the slow time begins then: {TIME_FORMS} (default 10 minutes before its end, or all of LOG)",
        "and ends then (default now, or the end of LOG)",
    ),
    has_agreement=False,
    place=add_config_option,
    form=add_form_option,
)
add_commands = QUESTION.add_to
