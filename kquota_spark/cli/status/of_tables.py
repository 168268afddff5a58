"""The state of the tables and checkpoints: the job, the shippers, the sources of quotas, the lag, the agreement.

The rules are those of `kquota doctor`, applied to the files of the newest day: one screen must not read a year.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.cli.options import SettingsPlace, percent_text
from kquota_spark.cli.status.part import Part, State, command_text, job_text, part_of
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.checks import jmx_checks, lag_checks, source_checks
from kquota_spark.errors import UserError
from kquota_spark.process.check import Check, Status, ok, warn
from kquota_spark.reports.agreement.agreement import DAY_MS, LEAST_PERCENT, Span, percent, total
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
_KNOWN = "select epoch_ms(min(known_through)) from quota_sources"


def parts_of_tables(settings: Settings, place: SettingsPlace, now_ms: int) -> Iterator[Part]:
    """The parts that need the tables. Without tables, one line reports the error, and the other parts are not known."""
    before = command_text("doctor --before", place)
    with Tables(settings) as tables:
        try:
            has_log, names = settings.kafka.has_log, _names(settings)
            for name in names:
                if name in ("quota_rules", "violations"):
                    tables.open(name)
                else:
                    tables.follow(name, DAY_MS)
        except UserError as error:
            problem, start = str(error).partition(": ")[0], job_text("audit", place)
            for name in _PARTS:
                known = (
                    (problem, None, start)
                    if name == "tables"
                    else ("not known without the tables", None, before)
                )
                yield Part(name, State.FAIL, *known)
            return
        newest_ms = tables.newest_ms("decisions")
        of_jmx = jmx_checks(tables, settings, now_ms) if settings.kafka.jmx_topic else []
        hops = lag_checks(tables, settings, now_ms) if has_log else of_jmx[-1:]
        yield _job(settings, hops[:1], newest_ms, place)
        yield part_of("shippers", [*(_senders(tables) if has_log else ()), *of_jmx], newest_ms, before)
        known_ms, sources = tables.query(_KNOWN).rows[0][0], source_checks(tables, settings, now_ms)
        yield part_of("sources", sources, known_ms, command_text("watch", place))
        yield Part("tables", State.OK, f"{len(names)} tables in {settings.tables}", newest_ms)
        yield part_of("lag", hops or [_nothing()], newest_ms, command_text("doctor", place))
        yield _agreement(tables, newest_ms, place)


def _names(settings: Settings) -> tuple[str, ...]:
    of_log = ("requests",) if settings.kafka.has_log else ()
    of_jmx = ("jmx_samples",) if settings.kafka.jmx_topic else ()
    return (*of_log, *of_jmx, "usage", "decisions", "violations", "quota_rules")


def _nothing() -> Check:
    return warn("lag", "no line has been read yet", "start a shipper")


def _job(settings: Settings, reading: Sequence[Check], newest_ms: int | None, place: SettingsPlace) -> Part:
    """The job. Arriving rows decide, because the job may run on another machine; its process is a detail."""
    pids = [driver_pid(settings.checkpoints, query) for query in (LOG, JMX)]
    pid = next((pid for pid in pids if pid is not None and _runs(pid)), None)
    is_reading = bool(reading) and reading[0].status is Status.OK
    if is_reading:
        return Part(
            "job", State.OK, f"reads; process {pid}" if pid else "reads, on another machine", newest_ms
        )
    if pid is not None:
        return Part(
            "job",
            State.WARN,
            f"process {pid} runs, and reads nothing new",
            newest_ms,
            command_text("doctor", place),
        )
    return Part(
        "job", State.FAIL, "does not run here, and nothing new is read", newest_ms, job_text("audit", place)
    )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, as another user
    return True


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
