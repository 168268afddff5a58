"""Metrics of the auditor for Prometheus: the sets of labels are bounded, and no label names a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from kquota_spark import __version__
from kquota_spark.audit.progress import Progress
from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.process.clock import now_s
from kquota_spark.process.metrics import Family, exposition, metrics_endpoint
from kquota_spark.schema.quota_tables import QUOTA_RULES
from kquota_spark.store.quota_rows import KNOWN_THROUGH
from kquota_spark.store.reading import query as query_tables


@dataclass(frozen=True, slots=True)
class State:
    """Values of the metrics at one moment; replaced as a whole, so that a scrape never shows half of an update."""

    queries: Mapping[str, Mapping[str, float]]
    """Values by query and metric; a value that is not known yet is left out."""
    agreement: Mapping[str, Mapping[str, float]]
    """Values by quota type and metric."""
    known_through_ms: int | None = None


_Kind = Literal["counter", "gauge"]
_OF_A_QUERY: tuple[tuple[str, _Kind, str], ...] = (
    ("query_active", "gauge", "1 while the query runs."),
    ("input_rows_total", "counter", "Messages of the topic that the query has read."),
    ("output_rows_total", "counter", "Rows that the query has written into its tables."),
    ("unreadable_lines_total", "counter", "Lines that could not be read; kept in requests with the reason."),
    (
        "out_of_time_lines_total",
        "counter",
        "Lines dated further ahead of their message or its reading than allowed.",
    ),
    ("late_requests_total", "counter", "Requests that came after their bucket had been judged further."),
    (
        "rows_behind_watermark_total",
        "counter",
        "Rows later than allowed, as Spark counts: groups, not lines.",
    ),
    (
        "rules_behind_decisions_total",
        "counter",
        "Decisions made before the quotas of their second were known.",
    ),
    ("batches_total", "counter", "Micro-batches done."),
    ("batch_seconds_total", "counter", "Time spent on them."),
    ("batch_duration_seconds", "gauge", "Time that the last micro-batch took."),
    (
        "last_progress_timestamp_seconds",
        "gauge",
        "When the query last ended a batch or was found waiting for rows.",
    ),
    ("input_lag_offsets", "gauge", "Messages of the topic not read yet, as of the last batch."),
    ("watermark_timestamp_seconds", "gauge", "The event time up to which seconds are closed."),
    ("newest_record_timestamp_seconds", "gauge", "The newest event time among the lines read."),
)
_OF_A_TYPE: tuple[tuple[str, _Kind, str], ...] = (
    ("requests_judged_total", "counter", "Verdicts compared with the broker's: certain and observable."),
    ("requests_agreeing_total", "counter", "Of these, throttled or not as the broker did."),
)


class AuditMetrics:
    """Collects the progress of the queries and renders it as the text of a scrape."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known_through_ms: int | None = None
        self._state = State({}, {})

    def read_tables(self) -> None:
        """Read from the tables until when the quotas are known, which no query reports; call it from time to time."""
        if not self._settings.metrics.port:
            return
        # The next read may succeed. A value that is not known is not shown.
        with suppress(UserError):
            rows = query_tables(
                self._settings, [QUOTA_RULES.name], KNOWN_THROUGH, [self._settings.cluster_id]
            ).rows
            self._known_through_ms = rows[0][0]

    def update(self, queries: Mapping[str, Progress], active: Mapping[str, bool]) -> None:
        """Set the progress of the queries, and whether each one runs; queries of earlier calls are kept."""
        found = {name: {**values, "query_active": 0.0} for name, values in self._state.queries.items()}
        for name, progress in queries.items():
            found[name] = self._of_query(name, progress, is_active=active[name])
        agreement = _agreement(queries[LOG]) if LOG in queries else self._state.agreement
        self._state = State(found, agreement, self._known_through_ms)

    def _of_query(self, name: str, progress: Progress, *, is_active: bool) -> dict[str, float]:
        counted = progress.counted
        values: dict[str, float | None] = {
            "query_active": int(is_active),
            "input_rows_total": progress.rows,
            "output_rows_total": counted.get("rows"),
            "unreadable_lines_total": counted.get("unreadable"),
            "out_of_time_lines_total": counted.get("out_of_time"),
            "late_requests_total": counted.get("late"),
            "rows_behind_watermark_total": progress.dropped if progress.watermark_s else None,
            "rules_behind_decisions_total": counted.get("rules_behind"),
            "batches_total": progress.batches,
            "batch_seconds_total": progress.batch_s,
            "batch_duration_seconds": progress.last_batch_s,
            "last_progress_timestamp_seconds": progress.last_seen_s,
            "input_lag_offsets": progress.offsets_behind,
            "watermark_timestamp_seconds": progress.watermark_s,
            "newest_record_timestamp_seconds": _seconds(counted.get("newest_ms")),
        }
        return {metric: float(value) for metric, value in values.items() if value is not None}

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve scrapes at the address and port of the settings; without a port, serve none.

        Raises:
            UserError: the server cannot listen on the address.
        """
        where = self._settings.metrics
        if not where.port:
            yield
            return
        with metrics_endpoint(where.address, where.port, self.scrape):
            yield

    def scrape(self) -> str:
        """The text of a scrape, with the values of this moment."""
        return exposition(self._families(self._state, now_s()))

    def _families(self, state: State, now_s: float) -> list[Family]:
        cluster = {"cluster_id": self._settings.cluster_id}
        trigger_s = self._settings.stream.trigger / 1_000
        families = [
            _gauge("up", "1 while the job runs.", cluster | {"version": __version__}, 1),
            _gauge("trigger_interval_seconds", "How often each query reads new rows.", cluster, trigger_s),
        ]
        if state.known_through_ms is not None:
            # The quotas of a file are known for all times, so they have no age.
            age_s = 0.0 if state.known_through_ms >= END_MS else now_s - state.known_through_ms / 1_000
            families.append(
                _gauge("quota_snapshot_age_seconds", "How old the known quotas are.", cluster, age_s)
            )
        for label, declared, found in (
            ("query", _OF_A_QUERY, state.queries),
            ("quota_type", _OF_A_TYPE, state.agreement),
        ):
            for name, kind, about in declared:
                samples = [
                    (cluster | {label: who}, values[name]) for who, values in found.items() if name in values
                ]
                families.append(Family(f"kquota_audit_{name}", kind, about, samples))
        return families


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1_000


def _agreement(log: Progress) -> dict[str, dict[str, float]]:
    counted = log.counted
    return {
        quota_type.value: {
            "requests_judged_total": float(counted[f"judged_{quota_type}"]),
            "requests_agreeing_total": float(counted[f"agreeing_{quota_type}"]),
        }
        for quota_type in QuotaType
        if counted.get(f"judged_{quota_type}")
    }


def _gauge(name: str, about: str, labels: Mapping[str, str], value: float) -> Family:
    return Family(f"kquota_audit_{name}", "gauge", about, [(labels, value)])
