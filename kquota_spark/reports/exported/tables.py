"""The metrics of `kquota exporter` about the tables, kept up to date by one refresh after another.

A refresh reads the files of `decisions` that were committed since the previous one, and the statistics of the other
tables' commits. So its duration does not depend on the size of the tables. Counters begin with the exporter: they count
what is committed while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kquota_spark import __version__
from kquota_spark.config.settings import Settings
from kquota_spark.process.metrics import Family
from kquota_spark.reports.exported.bucket_refresh import Refresh, read_refresh
from kquota_spark.reports.exported.judged_places import JudgedPlaces
from kquota_spark.reports.exported.metrics import Sample, bucket_samples, families
from kquota_spark.reports.exported.owner_metrics import OwnerMetrics
from kquota_spark.reports.exported.shown_buckets import CANDIDATES, IDLE_MS, ShownBuckets
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.quota_rows import KNOWN_THROUGH
from kquota_spark.store.reading import Tables

_TIMES = {
    "requests": "record_time_ms",
    "usage": "second",
    "decisions": "second",
    "jmx_samples": "sample_time_ms",
}
"""Tables with a metric of their newest event time, and the column of that time."""
_OPEN = """
select broker_id, quota_type, count(*) from violations where cluster_id = ? and end_time is null
group by all order by all
"""
_AHEAD_MS = 60_000
"""Time (ms) ahead of this machine's clock above which a clock is wrong."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """The metrics as they were after a refresh."""

    all: list[Family]
    of_exporter: list[Family]
    refreshed_at_ms: int

    def at(self, now_ms: int) -> list[Family]:
        """The metrics that are still true: only the exporter's own if no refresh has succeeded for five minutes."""
        return self.all if now_ms - self.refreshed_at_ms <= IDLE_MS else self.of_exporter


class ExportedTables:
    """The tables of a cluster as metrics; at most `max_series` buckets have series of their own."""

    def __init__(self, settings: Settings, max_series: int) -> None:
        self._settings = settings
        self._cluster_id = settings.cluster_id
        self._most = max_series
        self._shown = ShownBuckets(max_series)
        self._commits = {name: DeltaCommits(settings, name, column) for name, column in _TIMES.items()}
        self._violations = DeltaCommits(settings, "violations")
        self._places = JudgedPlaces()
        self._owners = OwnerMetrics(settings)
        self._hidden_used: dict[str, float] = {}
        self._newest_ms: dict[str, int] = {}
        self._open: list[tuple[int, str, int]] = []
        self._known_through_ms: int | None = None
        self._refreshes = self._errors = 0
        self._succeeded_ms: int | None = None
        self._duration_s = 0.0

    @property
    def newest_decision_ms(self) -> int | None:
        """Newest second of the decisions (epoch ms); None before there are any."""
        return self._newest_ms.get("decisions")

    def refresh(self, now_ms: int) -> None:
        """Read what is new in the tables.

        Raises:
            UserError: a table cannot be read; the next refresh reads what this one has not read.
        """
        self._of_decisions(now_ms)
        for name in ("requests", "usage", "jmx_samples"):
            self._of_statistics(name, now_ms)
        with Tables(self._settings) as tables:
            tables.open_if_there("quota_rules")
            self._known_through_ms = tables.query(KNOWN_THROUGH, [self._cluster_id]).rows[0][0]
        self._of_violations()
        self._owners.refresh()

    def count_refresh(self, now_ms: int, duration_s: float, *, is_failed: bool) -> None:
        """Count a refresh, and keep its duration."""
        self._refreshes += 1
        self._errors += is_failed
        self._duration_s = duration_s
        if not is_failed:
            self._succeeded_ms = now_ms

    def exposed(self, now_ms: int) -> Exposed:
        """The metrics of all scrapes from now until the next refresh."""
        self._shown.forget_idle(now_ms)
        of_exporter = tuple(self._of_exporter())
        of_buckets = bucket_samples(self._cluster_id, self._shown, self._places.newest_ms, self._hidden_used)
        of_places = self._places.samples(self._cluster_id)
        of_tables = (*of_buckets, *of_places, *self._of_tables(), *self._owners.samples())
        return Exposed(families((*of_tables, *of_exporter)), families(of_exporter), self._succeeded_ms or 0)

    def _of_decisions(self, now_ms: int) -> None:
        commits = self._commits["decisions"]
        found = commits.unread()
        if found is None:
            self._newest_ms.pop("decisions", None)
        elif found.is_fresh:
            self._begin(now_ms)
        else:
            with Tables(self._settings) as tables:
                tables.open_files("decisions", found.paths)
                self._fold(self._read_refresh(tables, from_ms=0), now_ms, is_counted=True)
            self._seen_newest("decisions", found.newest_ms, now_ms)
        if found is not None:
            commits.read(found)

    def _begin(self, now_ms: int) -> None:
        """Find the buckets in the last five minutes of the table; their counters begin at 0."""
        with Tables(self._settings) as tables:
            tables.open("decisions")
            newest_ms = tables.newest_ms("decisions")
        if newest_ms is None:
            return
        with Tables(self._settings) as tables:
            tables.open("decisions", newest_ms - IDLE_MS)
            refresh = self._read_refresh(tables, from_ms=newest_ms - IDLE_MS)
        self._seen_newest("decisions", newest_ms, now_ms)
        # Existing decisions may be days old. They are shown no longer than if they had been read at their own time.
        self._fold(refresh, min(now_ms, newest_ms), is_counted=False)

    def _read_refresh(self, tables: Tables, from_ms: int) -> Refresh:
        return read_refresh(
            tables,
            self._cluster_id,
            from_ms=from_ms,
            shown=self._shown.carried(),
            logged=self._places.logged,
            most=self._most * CANDIDATES,
        )

    def _fold(self, refresh: Refresh, now_ms: int, *, is_counted: bool) -> None:
        self._shown.fold(refresh, now_ms, is_counted=is_counted)
        self._places.fold(refresh, now_ms, is_counted=is_counted)
        hidden: dict[str, float] = {}
        for bucket in refresh.buckets:
            if bucket.key not in self._shown.series and bucket.quota_used_percent is not None:
                quota_type = bucket.key.quota_type
                hidden[quota_type] = max(bucket.quota_used_percent, hidden.get(quota_type, 0.0))
        self._hidden_used = hidden

    def _of_statistics(self, name: str, now_ms: int) -> None:
        found = self._commits[name].unread()
        if found is None:
            self._newest_ms.pop(name, None)
            return
        newest_ms = found.newest_ms
        if found.is_fresh:
            with Tables(self._settings) as tables:
                tables.open(name)
                newest_ms = tables.newest_ms(name)
        self._seen_newest(name, newest_ms, now_ms)
        self._commits[name].read(found)

    def _seen_newest(self, name: str, newest_ms: int | None, now_ms: int) -> None:
        # Lines of a broker with a clock that is ahead must not hide that the table does not grow.
        if newest_ms is not None and newest_ms <= now_ms + _AHEAD_MS:
            self._newest_ms[name] = max(newest_ms, self._newest_ms.get(name, 0))

    def _of_violations(self) -> None:
        found = self._violations.unread()
        if found is None:
            self._open = []
        elif found.version != self._violations.read_through:
            with Tables(self._settings) as tables:
                tables.open("violations")
                self._open = tables.query(_OPEN, [self._cluster_id]).rows
            self._violations.read(found)

    def _of_tables(self) -> Iterator[Sample]:
        cluster = {"cluster_id": self._cluster_id}
        for name, newest_ms in self._newest_ms.items():
            yield "table_newest_timestamp_seconds", cluster | {"table": name}, newest_ms / 1_000
        if self._known_through_ms is not None:
            yield "quotas_known_through_timestamp_seconds", cluster, self._known_through_ms / 1_000
        for broker_id, quota_type, count in self._open:
            place = {"broker_id": str(broker_id), "quota_type": quota_type}
            yield "open_violations", cluster | place, float(count)

    def _of_exporter(self) -> Iterator[Sample]:
        cluster = {"cluster_id": self._cluster_id}
        yield "exporter_build_info", cluster | {"version": __version__}, 1.0
        yield "exporter_refreshes_total", cluster, float(self._refreshes)
        yield "exporter_refresh_errors_total", cluster, float(self._errors)
        yield "exporter_refresh_duration_seconds", cluster, self._duration_s
        yield "exporter_shown_buckets", cluster, float(len(self._shown.series))
        for quota_type, count in self._shown.dropped.items():
            yield "exporter_dropped_buckets", cluster | {"quota_type": quota_type}, float(count)
        if self._succeeded_ms is not None:
            yield "exporter_last_refresh_timestamp_seconds", cluster, self._succeeded_ms / 1_000
