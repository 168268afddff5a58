"""Through when the tables are closed: no query will write an older second any more."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.compute as pc

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.checkpoints import read_below
from kquota_spark.schema.tables import DECISIONS, USAGE
from kquota_spark.store.storage import arrow_files, delta_table

_JUDGE = "judge"


def closed_through_ms(settings: Settings) -> int | None:
    """Every second before this time (epoch ms) has been measured, judged and folded; None for none yet.

    MEASURE closes seconds in order: what its newest row follows is closed, as far as JUDGE has read. A table may be
    read further than that, but not less. Without a checkpoint to look at (a job that was never started here), the
    newest second of `usage` counts, or of `decisions` if that is less: then nobody reads on.

    Raises:
        UserError: a table or a checkpoint cannot be read.
    """
    try:
        below = read_below(settings, _JUDGE)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"checkpoint {settings.checkpoints}/{_JUDGE} cannot be read: {reason}") from error
    if below == 0:
        return None
    measured = seconds_of(settings, USAGE.name, None if below is None else below - 1)
    judged = seconds_of(settings, DECISIONS.name)
    if measured is None or judged is None:
        return None
    return measured[1] + 1_000 if below is not None else min(measured[1], judged[1]) + 1_000


def seconds_of(settings: Settings, name: str, version: int | None = None) -> tuple[int, int] | None:
    """The oldest and the newest second that a table has from the log; None if it has none.

    The oldest is that of the first files, by their statistics, and may be older than any of the log. JMX is ahead of
    the log, so the newest is looked up in the rows, newest date first.
    """
    table = delta_table(settings, name, version)
    actions = table.get_add_actions(flatten=True)
    if "min.second" not in actions.schema.names:
        return None
    oldest = [_epoch_ms(time) for time in actions.column("min.second").to_pylist() if time is not None]
    dataset = table.to_pyarrow_dataset(filesystem=arrow_files(table))
    is_of_log = pc.scalar(True)
    if "source" in dataset.schema.names:
        is_of_log = pc.field("source").is_null() | (pc.field("source") == "log")
    for day in sorted(set(actions.column("partition.event_date").to_pylist()), reverse=True):
        rows = dataset.to_table(columns=["second"], filter=is_of_log & (pc.field("event_date") == day))
        if rows.num_rows:
            return min(oldest), _epoch_ms(pc.max(rows["second"]).as_py())
    return None


def _epoch_ms(time: datetime) -> int:
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
