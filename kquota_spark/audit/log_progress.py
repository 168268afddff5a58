"""The newest second of the log per broker, for the query of JMX: where the log has a second, JMX does not count.

The query of the log may run in another process, so its table is followed: each micro-batch opens the files that were
committed since the one before, however many the table has.
"""

from __future__ import annotations

import pyarrow as pa

from kquota_spark.audit.episodes import BUCKET_BROKER
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.reading import Tables, open_tables

_NEWEST = f"""
select {BUCKET_BROKER} as bucket_broker, quota_type, epoch_ms(max(second)) as log_ms
from decisions where cluster_id = $1 and coalesce(source, 'log') = 'log' and epoch_ms(second) >= $2 group by all
"""  # noqa: S608 - names of ours


class LogProgress:
    """The newest second of the log by broker of the bucket and quota type, see `episodes.of_one_source_sql`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits = DeltaCommits(settings, DECISIONS.name)
        self._from_ms: int | None = None
        """Seconds of the log since then are taken into account, epoch ms."""
        self._newest_ms: dict[tuple[int, str], int] = {}

    def since(self, since_ms: int) -> pa.Table:
        """The newest second of the log, a row per broker of a bucket and quota type.

        Args:
            since_ms: epoch ms. A row is there if the log has a second since then; one that was read before stays.

        Returns:
            Columns `bucket_broker`, `quota_type` and `log_ms`, epoch ms.

        Raises:
            UserError: the table cannot be read.
        """
        if not (self._is_known(since_ms) and self._follows()):
            self._begin(since_ms)
        places = list(self._newest_ms)
        return pa.table(
            {
                "bucket_broker": pa.array([broker_id for broker_id, _ in places], pa.int32()),
                "quota_type": pa.array([quota_type for _, quota_type in places], pa.string()),
                "log_ms": pa.array(self._newest_ms.values(), pa.int64()),
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
        for broker_id, quota_type, log_ms in tables.query(
            _NEWEST, [self._settings.cluster_id, since_ms]
        ).rows:
            place = (broker_id, quota_type)
            self._newest_ms[place] = max(log_ms, self._newest_ms.get(place, log_ms))
