"""Counts the windows of demand of closed dates once, and keeps them in `demand_days`: for `kquota maintain`."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from kquota_spark.audit.past.maintain import Step
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import counted
from kquota_spark.model.rightsize.target import MOST_DAYS
from kquota_spark.rightsize.kept_days import TABLES, State, files_of, held_days
from kquota_spark.rightsize.windows import day_rows
from kquota_spark.schema.day_tables import DEMAND_DAYS
from kquota_spark.store.commits import retried
from kquota_spark.store.creation import create_table
from kquota_spark.store.dated_files import FilesByTable, newest_days
from kquota_spark.store.delta.table import sql_text
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table


class DemandRollUp:
    """A roll-up of `audit.past.maintain`: called for each closed date, it counts those that are missing."""

    def __init__(self) -> None:
        self._files: FilesByTable | None = None
        self._missing = frozenset[str]()

    def __call__(self, settings: Settings, day: date) -> Step | None:
        """Replace the rows of a closed date, unless they hold; the step that was done.

        A date without rows of `decisions` or of `usage` is left as it is: they were deleted for their age.

        Raises:
            UserError: a table cannot be read or written.
        """
        if self._files is None:
            self._files = self._look(settings)
        name = day.isoformat()
        if name not in self._missing:
            return None
        try:
            rows = _rows(settings, name, self._files)
        except UserError as error:
            # A date that cannot be counted must not stop the deletion of old ones.
            return Step(DEMAND_DAYS.name, "skip", name, 0, str(error).splitlines()[0])
        if not len(rows):
            return None
        create_table(settings, DEMAND_DAYS)
        where = f"cluster_id = {sql_text(settings.cluster_id)} AND event_date = '{name}'"
        retried(lambda: delta_table(settings, DEMAND_DAYS.name).replace(rows, where))
        buckets = rows.group_by(["broker_id", "quota_type", "bucket_user", "bucket_client_id"]).aggregate([])
        return Step(DEMAND_DAYS.name, "add date", name, 1, f"{counted(len(buckets), 'bucket')} of a broker")

    def _look(self, settings: Settings) -> FilesByTable:
        """The files of the tables as they are now: a later commit counts in the next run."""
        with Tables(settings) as tables:
            has_both = all(tables.location(name) is not None for name in TABLES)
            files = files_of(tables) if has_both else None
            if files is None:
                return {}
            days = newest_days(files, MOST_DAYS)
            self._missing = frozenset(days) - held_days(tables, settings.cluster_id, files, days)
        return files


def _rows(settings: Settings, day: str, files: FilesByTable) -> pa.Table:
    """The rows of a date."""
    with Tables(settings) as tables:
        for name in TABLES:
            tables.open_files(name, files[name].paths[day])
        found = day_rows(tables, settings.cluster_id, day)
    same = State.of(files, day)._asdict()
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), len(found))
        if field.name in same
        else found.column(field.name).cast(field.type)
        for field in DEMAND_DAYS.arrow_schema()
    ]
    return pa.Table.from_arrays(columns, schema=DEMAND_DAYS.arrow_schema())
