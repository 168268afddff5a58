"""The time up to which the tables are closed: no micro-batch will write an older second any more."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.compute as pc

from kquota_spark.audit.violations.judged import Place, decided_seconds
from kquota_spark.checkpoints.checkpoints import LOG as CHECKPOINT
from kquota_spark.checkpoints.checkpoints import TARGETS, Checkpoint
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.reading import query
from kquota_spark.store.storage import delta_table, place_of

_NEWEST_LINE = """
select max(record_time_ms) from requests where cluster_id = ? and kind in ('request', 'left_out') and not is_out_of_time
"""


def closed_through_ms(settings: Settings) -> int | None:
    """The time (epoch ms) before which every second of this cluster is measured and judged; None for none yet.

    Seconds are closed in order, and a micro-batch commits `usage` before `decisions`. So everything up to the newest
    second that both tables have is closed. If the job has never run, nothing will judge the lines of `requests`, so
    all of them are closed.

    Raises:
        UserError: a table or the checkpoint cannot be read.
    """
    measured, judged = seconds_of(settings, USAGE.name), seconds_of(settings, DECISIONS.name)
    found = [min(measured[1], judged[1])] if measured and judged else []
    try:
        has_run = Checkpoint.of(settings, CHECKPOINT).exists
    except OSError as error:
        raise _unreadable(settings, CHECKPOINT, error) from error
    if not has_run:
        newest_ms = query(settings, [REQUESTS.name], _NEWEST_LINE, [settings.cluster_id]).rows[0][0]
        found += [] if newest_ms is None else [newest_ms // 1_000 * 1_000]
    return max(found) + 1_000 if found else None


def _unreadable(settings: Settings, name: str, error: Exception) -> UserError:
    return UserError(f"checkpoint {place_of(settings.checkpoints, name)} cannot be read: {one_line(error)}")


def not_folded_from_ms(settings: Settings) -> dict[Place, int]:
    """First second (epoch ms) by place of the decisions that may not be folded yet: those of the current micro-batch.

    Raises:
        UserError: a checkpoint cannot be read.
    """
    commits, found = BatchCommits(settings, DECISIONS), dict[Place, int]()
    for name in TARGETS:
        try:
            checkpoint = Checkpoint.of(settings, name)
            if not checkpoint.exists:
                continue
            done = -1 if checkpoint.last_batch is None else checkpoint.last_batch
            decided = commits.rows_of(MicroBatch(checkpoint.query_id, done + 1))
        except (OSError, ValueError, KeyError) as error:
            raise _unreadable(settings, name, error) from error
        if decided is not None:
            for each in decided_seconds(decided):
                place = (each.cluster_id, each.broker_id, each.source)
                found[place] = min(each.first_ms, found.get(place, each.first_ms))
    return found


def seconds_of(settings: Settings, name: str) -> tuple[int, int] | None:
    """The oldest and the newest second (epoch ms) of this cluster's log in a table; None if it has none.

    The oldest comes from the statistics of the files, and may be older than any second of the log. JMX and other
    clusters may be ahead of the log, so the newest is read from the rows, newest date first.
    """
    table = delta_table(settings, name)
    actions = table.files()
    if "min.second" not in actions.names:
        return None
    oldest = [_epoch_ms(time) for time in actions.column("min.second") if time is not None]
    dataset = table.dataset()
    is_of_log = pc.field("cluster_id") == settings.cluster_id
    if "source" in dataset.schema.names:
        is_of_log &= pc.field("source").is_null() | (pc.field("source") == "log")
    for day in sorted(set(actions.column("partition.event_date")), reverse=True):
        rows = dataset.to_table(columns=["second"], filter=is_of_log & (pc.field("event_date") == day))
        if rows.num_rows:
            return min(oldest), _epoch_ms(pc.max(rows["second"]).as_py())
    return None


def _epoch_ms(time: datetime) -> int:
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
