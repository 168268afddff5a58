"""The state of the tables and checkpoints: the job, the shippers, the sources of quotas, the lag, the agreement.

The rules are those of `kquota doctor`, applied to the files of the newest day: one screen must not read a year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.cli.options import SettingsPlace, percent_text
from kquota_spark.cli.status.of_job import Arrived, job_part, running_query
from kquota_spark.cli.status.part import Part, State, audit_text, command_text, part_of
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.checks import jmx_checks, lag_checks, source_checks
from kquota_spark.doctor.shadow_checks import shadow_checks
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.process.check import Check, ok, warn
from kquota_spark.reports.agreement.agreement import LEAST_PERCENT, percent, total
from kquota_spark.reports.agreement.span import DAY_MS, Span
from kquota_spark.store.reading import Tables, utc_text

_SILENT_MS = 60_000
"""A broker is silent if its newest line is this much older than that of the others. Each one sends every second."""
_MOST_NAMED = 5
_PARTS = ("job", "shippers", "sources", "tables", "lag", "agreement")
_SENDING = """
select cluster_id, broker_id, max(kafka_timestamp_ms) as newest_ms,
       max(newest_ms) over (partition by cluster_id) as all_ms
from requests where topic is not null and broker_id is not null group by cluster_id, broker_id order by all
"""
_NEWEST_LINE = "select max(kafka_timestamp_ms) from requests where topic is not null"
_NEWEST_SAMPLE = "select max(sample_time_ms) from jmx_samples where kind = 'sample'"
_KNOWN = "select epoch_ms(min(known_through)) from quota_sources"


class OfTables(NamedTuple):
    """The parts that need the tables."""

    parts: Sequence[Part]
    newest_ms: int | None
    """Newest second of `decisions`, epoch ms; None without one."""
    has_tables: bool
    """Whether the table `decisions` exists, even if it cannot be read."""


def parts_of_tables(
    settings: Settings, place: SettingsPlace, released_ms: int | None, clock_ms: Callable[[], int]
) -> OfTables:
    """The parts that need the tables. Without tables, one part has the error, and the others follow from it.

    Args:
        settings: where tables and checkpoints are.
        place: the settings as the caller named them, for the next command.
        released_ms: when the job's last driver released its lease, epoch ms; None if it did not, or has none.
        clock_ms: the wall clock, epoch ms; read after the tables, so that these are not ahead of it.
    """
    with Tables(settings) as tables:
        try:
            names = _names(settings)
            for name in names:
                if name in ("quota_rules", "violations"):
                    tables.open(name)
                else:
                    tables.follow(name, DAY_MS)
            parts = list(_parts(tables, settings, place, released_ms, clock_ms()))
            return OfTables(parts, tables.newest_ms("decisions"), True)
        except UserError as error:
            return OfTables(list(_without_tables(error, settings, place)), None, _has_tables(tables))


def _without_tables(error: UserError, settings: Settings, place: SettingsPlace) -> Iterator[Part]:
    """The parts if the tables cannot be read: only the job may still be known."""
    query = running_query(settings)
    pid = None if query is None else driver_pid(settings.checkpoints, query)
    problem, _, advice = str(error).partition(": ")
    is_missing = "audit" in advice
    then = command_text("doctor", place) if query or not is_missing else audit_text(place)
    tables = Part("tables", State.FAIL, problem if is_missing else str(error), None, then)
    for name in _PARTS:
        if name == "tables":
            yield tables
        elif name == "job" and query is not None:
            yield Part(name, State.WARN, f"process {pid} runs, and has written no tables yet", None, then)
        else:
            yield Part(name, State.FAIL, "not known without the tables").because(tables)


def _has_tables(tables: Tables) -> bool:
    try:
        return tables.location("decisions") is not None
    except (OSError, UserError):
        return True


def _parts(
    tables: Tables, settings: Settings, place: SettingsPlace, released_ms: int | None, now_ms: int
) -> Iterator[Part]:
    before, newest_ms, has_log = (
        command_text("doctor --before", place),
        tables.newest_ms("decisions"),
        settings.kafka.has_log,
    )
    of_jmx = jmx_checks(tables, settings, now_ms) if settings.kafka.jmx_topic else []
    hops = lag_checks(tables, settings, now_ms) if has_log else of_jmx[-1:]
    input_ms = tables.query(_NEWEST_LINE if has_log else _NEWEST_SAMPLE).rows[0][0]
    yield job_part(settings, Arrived(next(iter(hops), None), input_ms, newest_ms), released_ms, place)
    yield part_of("shippers", [*(_senders(tables) if has_log else ()), *of_jmx], newest_ms, before)
    known_ms, sources = tables.query(_KNOWN).rows[0][0], source_checks(tables, settings, now_ms)
    as_of_ms = None if known_ms == END_MS else known_ms
    yield part_of("sources", sources, as_of_ms, command_text("watch", place))
    yield Part(
        "tables", State.OK, f"{counted(len(_names(settings)), 'table')} in {settings.tables}", newest_ms
    )
    yield part_of("lag", hops or [_nothing()], newest_ms, command_text("doctor", place))
    yield _agreement(tables, newest_ms, place)
    if shadow := shadow_checks(settings):
        yield part_of("shadow", shadow, newest_ms, command_text("doctor", place))


def _names(settings: Settings) -> tuple[str, ...]:
    of_log = ("requests",) if settings.kafka.has_log else ()
    of_jmx = ("jmx_samples",) if settings.kafka.jmx_topic else ()
    return (*of_log, *of_jmx, "usage", "decisions", "violations", "quota_rules")


def _nothing() -> Check:
    return warn("lag", "no line has been read yet", "start a shipper")


def _senders(tables: Tables) -> list[Check]:
    rows = tables.query(_SENDING).dicts()
    if not rows:
        return [warn("shippers", "no line of a broker has been read yet", "start a shipper")]
    silent = [row for row in rows if row["newest_ms"] < row["all_ms"] - _SILENT_MS]
    if not silent:
        return [ok("shippers", f"{len(rows)} of {len(rows)} brokers send")]
    named = ", ".join(
        f"{row['broker_id']} since {utc_text(row['newest_ms'])}" for row in silent[:_MOST_NAMED]
    )
    more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
    evidence = f"{len(rows) - len(silent)} of {len(rows)} brokers send; silent: broker {named}{more}"
    return [warn("shippers", evidence, "start a shipper there")]


def _agreement(tables: Tables, newest_ms: int | None, place: SettingsPlace) -> Part:
    found = None if newest_ms is None else total(tables, Span(newest_ms - DAY_MS))
    share = None if found is None else percent(found)
    if found is None or share is None:
        return Part("agreement", State.OFF, "no certain verdict to compare in the last day", newest_ms)
    figure = f"{percent_text(share)} of {found['requests_judged']:,} certain verdicts in the last day"
    if share >= LEAST_PERCENT:
        return Part("agreement", State.OK, figure, newest_ms)
    return Part("agreement", State.WARN, figure, newest_ms, command_text("agreement", place))
