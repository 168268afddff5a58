"""How far the log of each broker has come, for the query of JMX: where the log tells of a second, JMX does not count.

The query of the log may run in another process, so its table is followed: each micro-batch opens the files that were
committed since the one before, however many the table has.
"""

from __future__ import annotations

import pyarrow as pa

from kquota_spark.audit.episodes import TELLER
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.reading import Tables, open_tables

_TOLD = f"""
select {TELLER} as teller, quota_type, epoch_ms(max(second)) as log_ms
from decisions where cluster_id = $1 and coalesce(source, 'log') = 'log' and epoch_ms(second) >= $2 group by all
"""  # noqa: S608 - names of ours


class LogTold:
    """The newest second of the log by teller and quota type, see `episodes.of_one_source_sql`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits = DeltaCommits(settings, DECISIONS.name)
        self._from_ms: int | None = None
        """What the log told since then is known."""
        self._told_ms: dict[tuple[int, str], int] = {}

    def since(self, since_ms: int) -> pa.Table:
        """Columns `teller`, `quota_type` and `log_ms` of those that have a second since then, epoch ms, or before it.

        Raises:
            UserError: the table cannot be read.
        """
        if not (self._is_known(since_ms) and self._follows()):
            self._begin(since_ms)
        places = list(self._told_ms)
        return pa.table(
            {
                "teller": pa.array([teller for teller, _ in places], pa.int32()),
                "quota_type": pa.array([quota_type for _, quota_type in places], pa.string()),
                "log_ms": pa.array(self._told_ms.values(), pa.int64()),
            }
        )

    def _is_known(self, since_ms: int) -> bool:
        return self._from_ms is not None and self._from_ms <= since_ms

    def _follows(self) -> bool:
        """Whether what was committed since the last look is read; not if that is much, or was removed meanwhile."""
        found = self._commits.look()
        if found is None or found.is_fresh:
            return False
        if found.paths:
            try:
                with Tables(self._settings) as tables:
                    tables.open_files(DECISIONS.name, found.paths)
                    self._take(tables, 0)
            except UserError:
                return False
        self._commits.read(found)
        further = self._commits.look()
        return further is not None and not further.paths

    def _begin(self, since_ms: int) -> None:
        self._commits = DeltaCommits(self._settings, DECISIONS.name)
        found = self._commits.look()
        with open_tables(self._settings, DECISIONS.name, newer_than_ms=since_ms) as tables:
            self._take(tables, since_ms)
        self._from_ms = since_ms
        if found is not None:
            self._commits.read(found)

    def _take(self, tables: Tables, since_ms: int) -> None:
        for teller, quota_type, log_ms in tables.query(_TOLD, [self._settings.cluster_id, since_ms]).rows:
            place = (teller, quota_type)
            self._told_ms[place] = max(log_ms, self._told_ms.get(place, log_ms))
