"""What the tables have of the time before a period: usual amounts, the first time of each client, the brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.counterfactuals import Client
from kquota_spark.model.attribution.observed import Baseline, BaselineKind, Observed, Sizes, Totals
from kquota_spark.model.attribution.onsets import BEFORE_MS, SLOT_MS
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.positions import Positions
from kquota_spark.reports.why.recorded import Recorded, Wanted
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_HOUR_MS, _DAY_MS, _WEEK_MS = 3_600_000, 86_400_000, 604_800_000
_WEEKS = 4
_LEAST_BEFORE_MS, _MOST_BEFORE_MS = 60_000, 600_000
"""Least and most time before a period that counts as usual, where the tables have no earlier day."""
_FILLING_MS = 11_000
"""Time in which a change can fill the samples before it is throttled: it does not count as usual, if there is more."""
_IN_TIME = f"""cluster_id = ? and {FROM_LOG} and usage.second >= make_timestamptz(?::bigint)
  and usage.second < make_timestamptz(?::bigint)"""
_OF_BUCKET = "(? = '' or \"user\" = ?) and (? = '' or client_id = ?)"
_ENDS = f"""
select epoch_ms(min(usage.second)), epoch_ms(max(usage.second)) from usage where cluster_id = ? and {FROM_LOG}
"""  # noqa: S608 - a condition of ours
_IS_SEEN = f"select count(*) from usage where {_IN_TIME}"  # noqa: S608 - ours
_TOTALS = f"""
select "user", client_id, sum(amount)::bigint, sum(requests)::bigint, sum(observed_throttle_ms)::bigint from usage
where {_IN_TIME} and {_OF_BUCKET} and quota_type in (select unnest(?)) group by all
"""  # noqa: S608 - names of ours
_FIRST_SEEN = f"""
select "user", client_id, epoch_ms(min(usage.second)) from usage
where cluster_id = ? and {FROM_LOG} and {_OF_BUCKET} and usage.second < make_timestamptz(?::bigint) group by all
"""  # noqa: S608 - names of ours
_SLOTS = f"""
select (epoch_ms(usage.second) - ?) // {SLOT_MS} as slot, sum(amount)::bigint from usage
where {_IN_TIME} and {_OF_BUCKET} and quota_type = ? group by all
"""  # noqa: S608 - names of ours
_BROKERS = f"select distinct broker_id from usage where {_IN_TIME} and broker_id >= 0 order by 1"  # noqa: S608 - ours
_DATA = (QuotaType.PRODUCE.value, QuotaType.FETCH.value)


class _Window(NamedTuple):
    from_ms: int
    to_ms: int


class Before:
    """The table `usage` of one cluster, for questions about the time before."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        """Take tables in which `usage` is opened as a whole.

        Args:
            settings: the cluster.
            tables: with `usage` opened.
        """
        self._cluster_id, self._tables = settings.cluster_id, tables
        first_ms, last_ms = tables.query(_ENDS, [self._cluster_id]).rows[0]
        self._first_ms, self._last_ms = int(first_ms or 0), int(last_ms or 0)

    def observed(self, one: Wanted, found: Recorded, positions: Positions | None = None) -> Observed:
        """A bucket with what came before its period.

        Args:
            one: the bucket and the period.
            found: its requests.
            positions: what its fetches read; None if their lines are not read.
        """
        window = _Window(one.from_ms, one.to_ms)
        slots_from_ms = max(one.from_ms - BEFORE_MS, self._first_ms) // SLOT_MS * SLOT_MS
        is_thread_time = found.replay.is_thread_time
        return Observed(
            found.case,
            found.replay,
            one.to_ms,
            self._first_ms,
            self._last_ms + 1_000,
            self._first_seen(one),
            self._baseline(one, is_thread_time=is_thread_time),
            self._slots(one, slots_from_ms),
            slots_from_ms,
            self._brokers(window),
            self._sizes(one.bucket, window) if is_thread_time else {},
            found.later,
            {order: positions[key] for order, key in enumerate(found.keys) if key in positions}
            if positions
            else {},
        )

    def _during(self, window: _Window) -> tuple[object, ...]:
        return self._cluster_id, window.from_ms * 1_000, window.to_ms * 1_000

    def _first_seen(self, one: Wanted) -> Mapping[Client, int]:
        rows = self._tables.query(
            _FIRST_SEEN, [self._cluster_id, *_names(one.bucket), one.to_ms * 1_000]
        ).rows
        return {(user, client_id): first_ms for user, client_id, first_ms in rows}

    def _brokers(self, window: _Window) -> tuple[int, ...]:
        return tuple(broker_id for (broker_id,) in self._tables.query(_BROKERS, self._during(window)).rows)

    def _slots(self, one: Wanted, from_ms: int) -> list[int]:
        during = self._during(_Window(from_ms, one.to_ms))
        asked = [from_ms, *during, *_names(one.bucket), one.bucket.quota_type]
        found = dict(self._tables.query(_SLOTS, asked).rows)
        return [found.get(slot, 0) for slot in range(max(0, (one.to_ms - from_ms) // SLOT_MS))]

    def _sizes(self, bucket: BucketName, window: _Window) -> Mapping[Client, Sizes]:
        return {
            client: Sizes(totals.amount, totals.requests)
            for client, totals in self._totals(bucket, window, _DATA).items()
        }

    def _totals(self, bucket: BucketName, window: _Window, types: Sequence[str]) -> Mapping[Client, Totals]:
        rows = self._tables.query(_TOTALS, [*self._during(window), *_names(bucket), list(types)]).rows
        return {
            (user, client_id): Totals(*(figure or 0 for figure in rest)) for user, client_id, *rest in rows
        }

    def _baseline(self, one: Wanted, *, is_thread_time: bool) -> Baseline | None:
        """The same hour of the last weeks, else of the day before, else the time before; None if there is none."""
        hour = _Window(one.from_ms // _HOUR_MS * _HOUR_MS, -(-one.to_ms // _HOUR_MS) * _HOUR_MS)
        weeks = [_shifted(hour, _WEEK_MS * week) for week in range(1, _WEEKS + 1)]
        covered = [window for window in weeks if self._is_covered(window)]
        kind, windows = BaselineKind.WEEKS, covered
        day = _shifted(hour, _DAY_MS)
        if not windows and day.to_ms <= one.from_ms and self._is_covered(day):
            kind, windows = BaselineKind.DAY, [day]
        if not windows:
            length_ms = max(_MOST_BEFORE_MS, one.to_ms - one.from_ms)
            end_ms = one.from_ms - _FILLING_MS
            if end_ms - self._first_ms < _LEAST_BEFORE_MS:
                end_ms = one.from_ms
            before = _Window(max(self._first_ms, end_ms - length_ms), end_ms)
            if before.to_ms - before.from_ms < _LEAST_BEFORE_MS:
                return None
            kind, windows = BaselineKind.BEFORE, [before]
        seconds = (windows[0].to_ms - windows[0].from_ms) // 1_000
        clients = _medians([self._totals(one.bucket, each, [one.bucket.quota_type]) for each in windows])
        baseline = Baseline(kind, seconds, clients)
        if not is_thread_time:
            return baseline
        sizes = _medians([self._totals(one.bucket, each, _DATA) for each in windows])
        return replace(baseline, sizes={client: Sizes(*totals[:2]) for client, totals in sizes.items()})

    def _is_covered(self, window: _Window) -> bool:
        if self._first_ms > window.from_ms:
            return False
        return bool(self._tables.query(_IS_SEEN, self._during(window)).rows[0][0])


def _shifted(window: _Window, by_ms: int) -> _Window:
    return _Window(window.from_ms - by_ms, window.to_ms - by_ms)


def _names(bucket: BucketName) -> tuple[str, str, str, str]:
    return bucket.user, bucket.user, bucket.client_id, bucket.client_id


def _medians(of_windows: Sequence[Mapping[Client, Totals]]) -> dict[Client, Totals]:
    """The median of each figure of each client; a client that is absent from a window has 0 there."""
    figures: dict[Client, list[Totals]] = defaultdict(list)
    for client in dict.fromkeys(client for of_window in of_windows for client in of_window):
        figures[client] = [of_window.get(client, Totals()) for of_window in of_windows]
    return {client: Totals(*map(median_low, zip(*rows, strict=True))) for client, rows in figures.items()}
