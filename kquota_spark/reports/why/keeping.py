"""For `kquota maintain`: keeps the causes of closed violations, before their requests are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.attribution.causes import LEAST_DELAY_MS
from kquota_spark.model.attribution.observed import BURST_S
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.kept import INPUTS, slowed_text
from kquota_spark.reports.why.reasons import Bounds, UseOfKept, reasons
from kquota_spark.reports.why.recorded import COVERED, Wanted
from kquota_spark.reports.why.rows import cause_rows
from kquota_spark.schema.cause_table import CAUSES
from kquota_spark.schema.harm import EPISODE_DELAY_MS
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.creation import create_table
from kquota_spark.store.delta.errors import OvertakenError, delta_errors
from kquota_spark.store.delta.table import sql_text, sql_texts
from kquota_spark.store.reading import Tables, query
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.storage import delta_table, place_of

_MOST_AT_ONCE = 1_000
"""Maximum violations per run, those with the most total delay of each day first. The next run continues."""
_MOST_PER_COMMIT = 100
_WITHIN = Bounds(of_all=400_000, kept=UseOfKept.NEVER)
"""What is replayed between two commits. Each answer is that of `kquota why`, but without the lines of fetches."""
_DAY_US = 86_400_000_000
_FIRST = f"select epoch_ms(min(usage.second)) from usage where usage.cluster_id = ? and {FROM_LOG}"  # noqa: S608 - ours
_NEW = f"""
select episode_id, violations.event_date, broker_id, quota_type, bucket_user, bucket_client_id,
       epoch_ms(violations.start_time) as start_ms, epoch_ms(violations.end_time) as end_ms,
       {EPISODE_DELAY_MS} as violation_delay_ms, {INPUTS} as inputs
from violations
where violations.cluster_id = ? and {FROM_LOG} and bucket_tags is null and list_contains(?::varchar[], quota_type)
  and greatest(coalesce(observed_throttled_ms, 0), coalesce(throttled_ms, 0)) >= {LEAST_DELAY_MS}
  and violations.end_time >= make_timestamptz(?::bigint) and violations.end_time < make_timestamptz(?::bigint)
  and violations.start_time >= make_timestamptz(?::bigint)
  and not exists (
    from causes where causes.cluster_id = violations.cluster_id and causes.episode_id = violations.episode_id
      and inputs = {INPUTS})
order by violation_delay_ms desc, violations.start_time, episode_id limit ?
"""  # noqa: S608 - names of ours


class KeptCauses:
    """A roll-up of `audit.past.maintain`: called for each closed date, before anything is deleted."""

    def __init__(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Nothing is kept yet.

        Args:
            progress: takes a line after each commit.
        """
        self._left = _MOST_AT_ONCE
        self._first_ms: int | None = None
        """The first request that the tables have, epoch ms: earlier violations cannot be replayed."""
        self._progress = progress

    def __call__(self, settings: Settings, day: date) -> int:
        """Keep the causes of the violations of a closed day that are not kept yet.

        A burst is known a minute after its beginning. So a violation belongs to the day in which that minute ends.

        Args:
            settings: where the tables are, and the cluster.
            day: the closed day.

        Returns:
            The number of violations that were kept.

        Raises:
            UserError: the table cannot be written.
        """
        try:
            if self._first_ms is None:
                self._first_ms = _first_ms(settings)
            new = _new(settings, day, self._first_ms, self._left)
        except UserError:  # no usage or no violations, as with JMX alone
            return 0
        done = 0
        for kept in _explained(settings, new):
            with suppress(OvertakenError):  # another process wrote the same, or the next run does
                _write(settings, kept)
            done += len(kept)
            self._progress(f"causes of {day}: {done:,} of {len(new):,} violations are kept")
        self._left -= done
        return done


_Kept = Sequence[tuple[Mapping[str, Any], Reasons]]
"""Violations as rows of `_NEW`, each with its causes."""


def _first_ms(settings: Settings) -> int:
    """The first second of `usage`, epoch ms; without one the end of time."""
    found = query(settings, ["usage"], _FIRST, [settings.cluster_id]).rows[0][0]
    return END_MS if found is None else int(found)


def _new(settings: Settings, day: date, first_ms: int, most: int) -> list[dict[str, Any]]:
    """The violations of a day without kept causes, or with those of other figures."""
    begins = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(seconds=BURST_S)
    from_us = round(begins.timestamp()) * 1_000_000
    if from_us + _DAY_US <= 1_000 * first_ms:
        return []
    with Tables(settings) as tables:
        tables.open("violations")
        tables.open_if_there(CAUSES.name)
        asked = [settings.cluster_id, list(COVERED), from_us, from_us + _DAY_US, 1_000 * first_ms, most]
        return tables.query(_NEW, asked).dicts()


def _explained(settings: Settings, new: Sequence[Mapping[str, Any]]) -> Iterator[_Kept]:
    """The violations that have recorded requests, in parts of which each is one commit."""
    of_wanted: dict[Wanted, list[Mapping[str, Any]]] = {}
    for row in new:
        of_wanted.setdefault(_wanted(row), []).append(row)
    waiting = list(of_wanted)
    while waiting:
        part, waiting = waiting[:_MOST_PER_COMMIT], waiting[_MOST_PER_COMMIT:]
        try:
            explained = reasons(settings, part, _WITHIN)
        except UserError:  # no quotas are recorded
            return
        waiting = [*explained.left_out, *waiting]
        yield [(row, found) for one, found in explained.found.items() for row in of_wanted[one]]


def _wanted(row: Mapping[str, Any]) -> Wanted:
    bucket = BucketName(row["quota_type"], row["bucket_user"], row["bucket_client_id"])
    return Wanted(bucket, row["start_ms"], row["end_ms"])


def _rows(cluster_id: str, row: Mapping[str, Any], found: Reasons) -> Iterator[dict[str, Any]]:
    """The rows of `causes` of one violation; times in epoch ms."""
    head = {name: row[name] for name in CAUSES.names if name in row} | {
        "cluster_id": cluster_id,
        "start_time": row["start_ms"],
        "end_time": row["end_ms"],
        "limit_per_s": found.limit_per_s,
        "delay_ms": found.delay_ms,
        "delay_by_replay_ms": found.attribution.delay_ms,
        "clients": found.clients,
        "replayed_until": found.to_ms,
    }
    rows = list(cause_rows(found))
    for each in rows:
        slowed = slowed_text(found.sharing) if each is rows[-1] else None
        yield head | each | {"evidence": json.dumps(each["evidence"]), "slowed": slowed}


def _write(settings: Settings, kept: _Kept) -> None:
    """Replace the rows of these violations: older ones have other figures, or another process wrote the same."""
    if not kept:
        return
    own = settings.cluster_id
    rows = arrow_rows(CAUSES, (each for row, found in kept for each in _rows(own, row, found)))
    days = sorted({row["event_date"].isoformat() for row, _ in kept})
    episodes = [row["episode_id"] for row, _ in kept]
    where = f"cluster_id = {sql_text(own)} and event_date in {sql_texts(days)} and episode_id in {sql_texts(episodes)}"
    create_table(settings, CAUSES)
    with delta_errors(f"table {CAUSES.name} cannot be written at {place_of(settings.tables, CAUSES.name)}"):
        delta_table(settings, CAUSES.name).replace(rows, where)
