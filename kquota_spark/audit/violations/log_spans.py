"""The spans in which a broker's log has decisions: for these seconds, JMX does not count.

The query of the log may run in another process, so its table is followed. Each micro-batch opens only the files that
were committed since the one before, however many files the table has.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kquota_spark.audit.violations.episodes import LOG_SILENCE_MS, log_spans_sql
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.reading import Tables, open_tables

_SPANS = log_spans_sql("(select * from decisions where cluster_id = $1 and epoch_ms(second) >= $2)")
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("bucket_broker", pa.int32()), ("quota_type", pa.string()), ("from_ms", pa.int64()), ("to_ms", pa.int64()),
]  # fmt: skip
_HOUR_MS = 3_600_000
LogPlace = tuple[int, str]
"""Broker of the bucket and quota type."""


class LogSpans:
    """The spans of the log by broker of the bucket and quota type, see `episodes.log_spans_sql`.

    A place has one span, and one more for each pause of the log.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits = DeltaCommits(settings, DECISIONS.name)
        self._from_ms: int | None = None
        """Time from which seconds of the log are included, epoch ms."""
        self._spans: dict[LogPlace, list[tuple[int, int]]] = {}

    def since(self, since_ms: int) -> pa.Table:
        """All known spans, complete since a time.

        Args:
            since_ms: that time, epoch ms; earlier spans may be missing.

        Returns:
            The columns of `log_spans_sql`.

        Raises:
            UserError: the table cannot be read.
        """
        if not (self._is_known(since_ms) and self._follows()):
            self._begin(since_ms)
        self._forget(since_ms - _HOUR_MS)
        schema = pa.schema(_COLUMNS)
        rows = [
            dict(zip(schema.names, (*place, *span), strict=True))
            for place, spans in self._spans.items()
            for span in spans
        ]
        return pa.Table.from_pylist(rows, schema=schema)

    def _is_known(self, since_ms: int) -> bool:
        return self._from_ms is not None and self._from_ms <= since_ms

    def _follows(self) -> bool:
        """Read the files committed since the last read; False if they are too many, or were removed meanwhile."""
        found = self._commits.unread()
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
        further = self._commits.unread()
        return further is not None and not further.paths

    def _begin(self, since_ms: int) -> None:
        self._commits = DeltaCommits(self._settings, DECISIONS.name)
        found = self._commits.unread()
        with open_tables(self._settings, DECISIONS.name, newer_than_ms=since_ms) as tables:
            self._take(tables, since_ms)
        self._from_ms = since_ms
        if found is not None:
            self._commits.read(found)

    def _take(self, tables: Tables, since_ms: int) -> None:
        for broker_id, quota_type, from_ms, to_ms in tables.query(
            _SPANS, [self._settings.cluster_id, since_ms]
        ).rows:
            place = (broker_id, quota_type)
            self._spans[place] = joined([*self._spans.get(place, ()), (from_ms, to_ms)])

    def _forget(self, before_ms: int) -> None:
        # Not at each call, because this visits all spans: a rarely used place has one for each use.
        if self._from_ms is None or self._from_ms > before_ms - _HOUR_MS:
            return
        kept = {
            place: [span for span in spans if span[1] >= before_ms] for place, spans in self._spans.items()
        }
        self._spans = {place: spans for place, spans in kept.items() if spans}
        self._from_ms = before_ms


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of time (epoch ms), joined if the pause between them is at most `LOG_SILENCE_MS`."""
    found: list[tuple[int, int]] = []
    for from_ms, to_ms in sorted(spans):
        if found and from_ms - found[-1][1] <= LOG_SILENCE_MS:
            found[-1] = (found[-1][0], max(to_ms, found[-1][1]))
        else:
            found.append((from_ms, to_ms))
    return found
