"""Keeps the impact of each edit in the table `edit_impact`, once the time after it has ended: for `kquota maintain`."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.reports.impact.edit_impact import Impact, Impacts, day_of, impact_rows
from kquota_spark.schema.shadow_tables import EDIT_IMPACT
from kquota_spark.store.creation import create_table
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.storage import delta_table, place_of

_MOST_AT_ONCE = 100
"""Maximum edits per run; each replays up to a day of its clients. The next run continues."""


class KeptImpacts:
    """A roll-up of `audit.past.maintain`: called for each closed date, it reads the edits once."""

    def __init__(self) -> None:
        self._impacts: Impacts | None = None
        self._is_missing = False
        self._left = _MOST_AT_ONCE

    def __call__(self, settings: Settings, day: date) -> int:
        """Append the impacts of the edits of a day that are complete and not kept yet; returns their number.

        Raises:
            UserError: the table cannot be written.
        """
        if self._impacts is None and not self._is_missing:
            try:
                self._impacts = Impacts(settings)
            except UserError:  # no quotas are recorded, as with JMX alone
                self._is_missing = True
        if self._impacts is None:
            return 0
        found: list[Impact] = []
        for edit in self._impacts.edits:
            if self._left and day_of(edit) == day and not self._impacts.is_stored(edit):
                impact = self._impacts.of_complete(edit)
                if impact is not None:
                    self._left -= 1
                    found.append(impact)
        if found:
            _append(settings, arrow_rows(EDIT_IMPACT, impact_rows(self._impacts.cluster_id, found)))
        return len(found)


def _append(settings: Settings, rows: pa.Table) -> None:
    create_table(settings, EDIT_IMPACT)
    place = place_of(settings.tables, EDIT_IMPACT.name)
    with delta_errors(f"table {EDIT_IMPACT.name} cannot be written at {place}"):
        delta_table(settings, EDIT_IMPACT.name).append(rows)
