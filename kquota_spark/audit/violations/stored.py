"""Episodes as rows of the table `violations`: read as pieces, written in one commit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.audit.violations.episodes import LOG, PIECE_COLUMNS
from kquota_spark.schema.tables import VIOLATIONS
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.delta.table import StoredTable

ON_SAME = "old.episode_id = new.episode_id and old.event_date = new.event_date"
_TIMES = {
    "start_time": "start_ms", "last_second": "last_ms", "muted_until": "muted_until_ms", "end_time": "end_ms",
}  # fmt: skip
_IN_MS, _IN_US = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")


def episodes_in(table: StoredTable, which: pc.Expression) -> pa.Table:
    """Episodes as pieces, with `episode_id` and `end_ms`, epoch ms.

    Args:
        table: `violations`.
        which: a condition on its columns.
    """
    rows = table.dataset().to_table(filter=which)
    for name, in_ms in _TIMES.items():
        rows = rows.append_column(in_ms, rows[name].cast(_IN_MS, safe=False).cast(pa.int64()))
    of_log: Any = pc.coalesce(rows["source"], pa.scalar(LOG))
    rows = rows.set_column(rows.schema.get_field_index("source"), "source", of_log)
    return rows.select([*PIECE_COLUMNS, "episode_id", "end_ms"])


def violation_rows(episodes: pa.Table) -> pa.Table:
    """Rows of `violations` from episodes with ids and ends."""
    columns: list[Any] = []
    names = set(episodes.schema.names)
    for field in VIOLATIONS.arrow_schema():
        if field.name == "event_date":
            columns.append(episodes["start_ms"].cast(_IN_MS).cast(pa.date32()))
        elif _TIMES.get(field.name) in names:
            columns.append(episodes[_TIMES[field.name]].cast(_IN_MS).cast(_IN_US))
        elif field.name in names:
            columns.append(episodes[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(episodes.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=VIOLATIONS.arrow_schema())


def write_episodes(
    table: StoredTable, rows: pa.Table, removed: pa.Table, on: str, batch: MicroBatch | None = None
) -> None:
    """Write episodes and remove others, in one commit.

    Args:
        table: `violations`.
        rows: rows of `violations` to insert or update.
        removed: rows to remove; only their ids, dates and starts count.
        on: SQL condition for the rows of the table to compare with: `ON_SAME`, or a stricter one.
        batch: the micro-batch that the commit carries; None for none.
    """
    source = pa.concat_tables(
        [
            each.append_column("is_removed", pa.repeat(is_removed, each.num_rows))
            for each, is_removed in ((rows, False), (removed, True))
        ]
    )
    table.merge(source, f"{on} and {_of_starts(source)}", VIOLATIONS.names, "is_removed", batch)


def _of_starts(source: pa.Table) -> str:
    """SQL: condition that leaves out files of other times, by their statistics; an id has one start."""
    ends = (pc.min(source["start_time"]), pc.max(source["start_time"]))
    first, last = (
        f"arrow_cast({time.cast(pa.int64()).as_py()}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        for time in ends
    )
    return f"old.start_time >= {first} and old.start_time <= {last}"
