"""Keeps the agreement of closed days, for when their decisions are gone."""

from __future__ import annotations

from datetime import date

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.storage import storage_options
from kquota_spark.reports import agreement
from kquota_spark.schema.agreement_tables import AGREEMENT


def roll_up_agreement(settings: Settings, day: date) -> int:
    """Write the rows of one closed UTC day in place of those that are there; how many rows.

    The same decisions give the same rows, so a day may be rolled up again, and has to be after a restatement. The
    caller sees to it that the day is closed: later decisions of a rolled-up day are not counted.

    Raises:
        UserError: the decisions cannot be read, or the table cannot be written.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    rows = agreement.of_day(settings, day)
    if not rows:
        return 0  # its decisions may be gone already: what was kept of them stays
    path = f"{settings.tables.rstrip('/')}/{AGREEMENT.name}"
    schema = AGREEMENT.arrow_schema()
    try:
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
            storage_options=storage_options(settings),
        )
    except (DeltaError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"table {AGREEMENT.name} cannot be written at {path}: {reason}") from error
    return len(rows)
