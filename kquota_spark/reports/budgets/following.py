"""The error budgets of owners as the tables grow: the whole period once, then only its newest minutes.

Closed dates of the whole period come from `budget_days` if it has them.

A second is a bit, so rows that are read again count once. The last minutes are read again each time, because lines of a
second can come in several commits. A throttle over the begin of the period counts until its last second has passed; in
a budget that is recomputed it does not count.
"""

from __future__ import annotations

from collections import defaultdict

from kquota_spark.config.settings import Settings
from kquota_spark.model.budgets.budgets import OwnSeconds, budget_of
from kquota_spark.model.budgets.objectives import Spent
from kquota_spark.model.budgets.seconds import HOUR_S
from kquota_spark.reports.budgets.grouping import Grouping
from kquota_spark.reports.budgets.own_seconds import own_seconds, places_of_log
from kquota_spark.reports.budgets.owned_budgets import OwnedBudget, most_spent, newest_ms
from kquota_spark.reports.budgets.period_seconds import period_seconds
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.dated_files import DAY_MS
from kquota_spark.store.reading import Tables

AGAIN_MS = 600_000
"""Time before the newest known second that is read again, ms: lines that come later than that are not counted."""
_TABLES = ("usage", "decisions")
_Read = tuple[dict[str, OwnSeconds], int]
"""The seconds that were read by group, and the end of the newest one, epoch ms."""


class FollowedBudgets:
    """The budgets of one cluster, for repeated reads."""

    def __init__(self, settings: Settings, grouping: Grouping) -> None:
        self._settings, self._grouping = settings, grouping
        self._tables: Tables | None = None
        self._own: dict[str, OwnSeconds] = defaultdict(OwnSeconds)
        self._before: dict[str, Spent] = {}
        self._began_s = 0
        self._logged: dict[str, int] = {}
        self.to_ms: int | None = None
        """The end of the newest second that was read, epoch ms; None before there is any."""

    def close(self) -> None:
        """Free the resources for reading; the next read opens the tables again."""
        if self._tables is not None:
            self._tables.close()
        self._tables = None

    def read(self) -> bool:
        """Read what is new; whether there was anything.

        Raises:
            UserError: a table cannot be read; the next read finds what this one has not read.
        """
        try:
            return self._read()
        except BaseException:
            self.close()
            raise

    def at(self) -> list[OwnedBudget]:
        """The budgets at the newest second, the least left first."""
        if self.to_ms is None:
            return []
        to_s = self.to_ms // 1_000
        return most_spent(
            OwnedBudget(name, budget_of(own, self._grouping.objective_of(name), to_s), own)
            for name, own in self._own.items()
        )

    def since_begun(self, name: str) -> Spent:
        """The seconds of a group since the first read. They never become fewer, as Prometheus' counters need it."""
        active_s, throttled_s = self._before.get(name, (0, 0))
        if self.to_ms is None or name not in self._own:
            return Spent(active_s, throttled_s)
        now = self._own[name].spent(self._began_s, self.to_ms // 1_000)
        return Spent(active_s + now.active_s, throttled_s + now.throttled_s)

    def _read(self) -> bool:
        tables = self._tables = self._tables or Tables(self._settings)
        if any(tables.location(name) is None for name in _TABLES):
            return False
        changed = [tables.follow(name, 2 * AGAIN_MS) for name in _TABLES]
        if not any(changed):
            return False
        read = self._whole_period(tables) if self.to_ms is None else self._newest_minutes(tables, self.to_ms)
        if read is None:
            return False
        seconds, to_ms = read
        for name, own in seconds.items():
            self._own[name].add_all(own)
        if self.to_ms is None:
            self._began_s = to_ms // 1_000
        self.to_ms = max(to_ms, self.to_ms or 0)
        self._forget()
        return True

    def _whole_period(self, tables: Tables) -> _Read | None:
        """The seconds of the period, and its end, epoch ms; None if the tables have no second of the cluster."""
        newest = _newest(tables)
        if not newest:
            return None
        from_ms = max(newest) - self._grouping.period_s * 1_000
        cluster_id = self._settings.cluster_id
        to_ms = newest_ms(tables, cluster_id)
        if to_ms is None:
            # Another cluster is ahead, and only the newest files are open.
            tables.open("decisions", from_ms)
            to_ms = newest_ms(tables, cluster_id)
        if to_ms is None or to_ms <= from_ms:
            return None if to_ms is None else ({}, to_ms)
        period = Period(to_ms - self._grouping.period_s * 1_000, to_ms)
        seconds = period_seconds(tables, cluster_id, period, self._grouping)
        self._remember_log(tables, to_ms - AGAIN_MS)
        return seconds, to_ms

    def _newest_minutes(self, tables: Tables, before_ms: int) -> _Read | None:
        """The same from some time before the end of the last read (epoch ms) on."""
        newest, from_ms = _newest(tables), before_ms - AGAIN_MS
        if newest and from_ms < max(newest) - 2 * AGAIN_MS:
            for name in _TABLES:
                tables.open(name, from_ms)
        to_ms = newest_ms(tables, self._settings.cluster_id)
        if to_ms is None:
            return None
        period = Period(from_ms, to_ms)
        # The log may be idle since then. Its earlier rows of the date count for the choice of one source.
        own = own_seconds(tables, self._settings.cluster_id, period, self._grouping, self._logged)
        self._remember_log(tables, from_ms)
        return own.seconds, to_ms

    def _remember_log(self, tables: Tables, from_ms: int) -> None:
        """Remember the dates of which the log has rows, from that of a time on (epoch ms)."""
        known = self._logged | places_of_log(tables)
        self._logged = {place: day for place, day in known.items() if day >= from_ms // DAY_MS}

    def _forget(self) -> None:
        """Forget hours before the period; what they add to counters is kept."""
        if self.to_ms is None:
            return
        end_s = (self.to_ms // 1_000 - self._grouping.period_s) // HOUR_S * HOUR_S
        for name, own in self._own.items():
            if self._began_s < end_s:
                active_s, throttled_s = self._before.get(name, (0, 0))
                passed = own.spent(self._began_s, end_s)
                self._before[name] = Spent(active_s + passed.active_s, throttled_s + passed.throttled_s)
            own.forget_before(end_s)
        self._began_s = max(self._began_s, end_s)


def _newest(tables: Tables) -> list[int]:
    """The newest times of the opened tables, epoch ms; none of empty tables."""
    return [time_ms for name in _TABLES if (time_ms := tables.newest_ms(name)) is not None]
