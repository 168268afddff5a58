"""Keeps the agreement of closed days, for when their decisions are gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import AGREEMENT, DECISIONS
from kquota_spark.store.failures import delta_errors
from kquota_spark.store.places import place_of
from kquota_spark.store.storage import delta_table_if_there, storage_options


def roll_up_agreement(
    settings: Settings, day: date, *, rows_of: Callable[[Settings, date], list[dict[str, Any]]]
) -> int:
    """Write the rows of one closed UTC day in place of those that are there; how many were written.

    The same decisions give the same rows. Nothing is done while no file of the day's decisions is newer than what is
    there, so this may be called for every day again and again, and a restatement counts at the next call. The caller
    sees to it that the day is closed: decisions that come later are not counted until then.

    Args:
        settings: where the tables are.
        day: the closed day.
        rows_of: counts the decisions of a day, `reports.agreement.agreement.of_day`.

    Raises:
        UserError: the decisions cannot be read, or the table cannot be written.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    written_ms = _newest_file_ms(settings, AGREEMENT.name, day)
    if written_ms is not None and written_ms > (_newest_file_ms(settings, DECISIONS.name, day) or 0):
        return 0
    rows = rows_of(settings, day)
    if not rows:
        return 0  # its decisions may be gone already: what was kept of them stays
    path = place_of(settings.tables, AGREEMENT.name)
    schema = AGREEMENT.arrow_schema()
    with delta_errors(f"table {AGREEMENT.name} cannot be written at {path}"):
        DeltaTable.create(
            path,
            schema=schema,
            mode="ignore",
            partition_by=list(AGREEMENT.partition_by),
            name=AGREEMENT.name,
            description=AGREEMENT.grain,
            storage_options=storage_options(settings),
        )
        write_deltalake(
            path,
            pa.Table.from_pylist(rows, schema=schema),
            mode="overwrite",
            predicate=f"event_date = '{day.isoformat()}'",
            schema_mode="merge",  # an earlier release had fewer columns
            storage_options=storage_options(settings),
        )
    return len(rows)


def _newest_file_ms(settings: Settings, name: str, day: date) -> int | None:
    """When the newest file of a day was written, epoch ms; None without the table, or without any of that day."""
    table = delta_table_if_there(settings, name)
    if table is None:
        return None
    actions = table.get_add_actions(flatten=True)
    if "partition.event_date" not in actions.schema.names:
        return None
    days, times = (
        actions.column(column).to_pylist() for column in ("partition.event_date", "modification_time")
    )
    return max((time for of_day, time in zip(days, times, strict=True) if of_day == day), default=None)
