"""The table `violations`: episodes are folded into it micro-batch by micro-batch, or made anew from all decisions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.episodes import LOG, BucketId, Clocks, Episode, Violation, folded
from kquota_spark.schema.harm import IS_VIOLATED
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, retried
from kquota_spark.store.durable import sync_commit
from kquota_spark.store.reading import Tables, open_tables
from kquota_spark.store.rows import arrow_rows, rows_in_ms
from kquota_spark.store.storage import arrow_files, delta_table

LOG_SILENCE_MS = 600_000
"""So long after the log's last word JMX tells of violations instead."""
BUCKET_COLUMNS = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags")
SECOND_COLUMNS = (
    *BUCKET_COLUMNS, "second", "level", "rule", "limit_per_s", "rate_per_s", "quota_used_percent",
    "total_throttle_ms", "throttled_requests", "source", "users", "client_ids", "throttle_ms",
    "observed_total_throttle_ms", "observed_throttled_requests", "observed_throttle_ms",
)  # fmt: skip
"""Columns of `decisions` that a violated second is made of."""
_EPISODE_COLUMNS = (
    "start_time", "last_second", "level", "rule", "limit_per_s", "peak_rate_per_s", "peak_quota_used_percent",
    "violated_seconds", "throttled_ms", "throttled_requests", "source", "users", "client_ids", "longest_throttle_ms",
    "observed_throttled_ms", "observed_throttled_requests", "observed_longest_throttle_ms",
)  # fmt: skip
_LOG_TOLD = """
select case quota_type when $3 then $4 else broker_id end as teller, quota_type, epoch_ms(max(second))
from decisions where cluster_id = $1 and coalesce(source, 'log') = 'log' and epoch_ms(second) >= $2 group by all
"""
ON_SAME = "old.episode_id = new.episode_id and old.event_date = new.event_date"
_writing = threading.Lock()
"""The queries of log and JMX fold in one process."""

Piece = tuple[BucketId, Episode]
Place = tuple[str, int, str]
"""Cluster, broker and source, each of which has a time of its own."""


class Judged(NamedTuple):
    """What episodes need of a micro-batch of decisions: its violated seconds, and its newest ones."""

    violated: Sequence[Piece]
    newest_ms: dict[Place, int]


def violated_seconds(decisions: pa.Table) -> pa.Table:
    """Seconds that belong to episodes: `schema.harm.IS_VIOLATED`.

    Exactly at the limit is allowed (Kafka's `Quota.acceptable`).
    """
    column: Any = pc.field
    is_told = column("observed_total_throttle_ms").is_valid()
    is_over = column("quota_used_percent") > 100.0
    is_throttled = column("observed_throttled_requests") > 0
    is_violated = (~is_told & is_over) | (is_told & (is_throttled | (is_over & column("is_certain"))))
    return decisions.filter(is_violated).select(SECOND_COLUMNS)


def seconds_by_place(decisions: pa.Table, which: Literal["min", "max"]) -> list[tuple[str, int, str, int]]:
    """Cluster, broker and source with their first or newest second, epoch ms."""
    keys = ["cluster_id", "broker_id", "source"]
    found = decisions.select([*keys, "second"]).group_by(keys).aggregate([("second", which)])
    in_ms = found[f"second_{which}"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    return list(zip(*(found[key].to_pylist() for key in keys), in_ms, strict=True))


def judged_of(violated: pa.Table, newest: Iterable[tuple[str, int, str, int]]) -> Judged:
    """The rows of `violated_seconds` and the newest of `seconds_by_place`, of all parts of a micro-batch."""
    newest_ms: dict[Place, int] = {}
    for cluster_id, broker_id, source, time_ms in newest:
        place = (cluster_id, broker_id, source or LOG)
        newest_ms[place] = max(time_ms, newest_ms.get(place, time_ms))
    return Judged([piece_of_second(row) for row in rows_in_ms(violated)], newest_ms)


def piece_of_second(row: dict[str, Any]) -> Piece:
    """A row with `SECOND_COLUMNS`, its time in epoch ms."""
    episode = Episode(
        row["second"], row["second"], row["level"], row["rule"], row["limit_per_s"], row["rate_per_s"],
        row["quota_used_percent"], 1, row["total_throttle_ms"], row["throttled_requests"], row["source"] or LOG,
        row["users"] or (), row["client_ids"] or (), row["throttle_ms"], row["observed_total_throttle_ms"],
        row["observed_throttled_requests"], row["observed_throttle_ms"],
    )  # fmt: skip
    return _bucket(row), episode


def _bucket(row: dict[str, Any]) -> BucketId:
    return BucketId(*(row[name] for name in BUCKET_COLUMNS))


class EpisodeFold:
    """Folds micro-batches of decisions into the episodes that are open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._commits = BatchCommits(settings, VIOLATIONS)

    def fold(self, judged: Judged, batch: MicroBatch) -> None:
        """Fold one micro-batch, once.

        Raises:
            UserError: other writers of the table were always faster.
        """
        with _writing:
            pieces = [*_of_one_source(self._settings, judged.violated)]
            retried(lambda: self._fold(pieces, judged.newest_ms, batch))
            self._commits.sync()

    def _fold(self, pieces: Sequence[Piece], newest_ms: Mapping[Place, int], batch: MicroBatch) -> None:
        # One version of the table for the check, the read and the commit: what another driver commits in between
        # makes this commit fail.
        table = self._commits.newest()
        if batch.is_in(table):
            return
        still_open = dict(self._still_open(table))
        found = folded(
            [*((each.bucket, each.episode) for each in still_open.values()), *pieces],
            Clocks(newest_ms),
            self._settings.stream.episode_gap,
        )
        changed = [each for each in found if still_open.get(each.episode_id) != each]
        if changed:
            merger = table.merge(
                arrow_rows(VIOLATIONS, map(violation_row, changed)),
                ON_SAME,
                source_alias="new",
                target_alias="old",
                commit_properties=batch.properties,
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def _still_open(self, table: DeltaTable) -> Iterator[tuple[str, Violation]]:
        is_mine = pc.field("cluster_id") == self._settings.cluster_id
        rows = table.to_pyarrow_dataset(filesystem=arrow_files(table)).to_table(
            filter=pc.field("end_time").is_null() & is_mine
        )
        for row in rows_in_ms(rows):
            episode = Episode(*(row[name] for name in _EPISODE_COLUMNS))
            of_log = episode._replace(source=episode.source or LOG)
            yield row["episode_id"], Violation(_bucket(row), of_log, None)


def violation_row(violation: Violation) -> dict[str, Any]:
    """A row of the table; times in epoch ms."""
    episode = violation.episode
    return {
        **dict(zip(BUCKET_COLUMNS, violation.bucket, strict=True)),
        **dict(zip(_EPISODE_COLUMNS, episode, strict=True)),
        "event_date": datetime.fromtimestamp(episode.start_ms / 1_000, UTC).date(),
        "episode_id": violation.episode_id,
        "end_time": violation.end_ms,
    }


def _of_one_source(settings: Settings, violated: Sequence[Piece]) -> Iterator[Piece]:
    """Leave out seconds from JMX where the same broker's log tells of the same type of quota.

    Both see the same violation, at their own seconds. The log, which misses nothing, counts; when it has said nothing
    for `LOG_SILENCE_MS`, the shipper is away or there is none, and JMX counts.
    """
    of_jmx = [episode.start_ms for _, episode in violated if episode.source != LOG]
    if not (of_jmx and settings.kafka.has_log):
        return iter(violated)
    mutation = QuotaType.CONTROLLER_MUTATION.value
    since_ms = min(of_jmx) - LOG_SILENCE_MS
    with open_tables(settings, DECISIONS.name, newer_than_ms=since_ms) as tables:
        rows = tables.query(_LOG_TOLD, [settings.cluster_id, since_ms, mutation, CONTROLLER_ID]).rows
    told_ms = {(teller, quota_type): time_ms for teller, quota_type, time_ms in rows}

    def is_told(bucket: BucketId, start_ms: int) -> bool:
        # Of mutations there is one bucket in the cluster, whichever broker's JMX shows it.
        teller = CONTROLLER_ID if bucket.quota_type == mutation else bucket.broker_id
        newest_ms = told_ms.get((teller, bucket.quota_type))
        return newest_ms is not None and start_ms - newest_ms <= LOG_SILENCE_MS

    return (
        (bucket, episode)
        for bucket, episode in violated
        if episode.source == LOG or not is_told(bucket, episode.start_ms)
    )


_DAY_MS = 86_400_000
_OLD = """
select episode_id, event_date, epoch_ms(start_time) as start_ms, epoch_ms(last_second) as last_ms from violations
where cluster_id = $1 and epoch_ms(start_time) <= $3 and epoch_ms(last_second) >= $2
"""
_NEWEST = """
select cluster_id, broker_id, coalesce(source, 'log') as told_by, epoch_ms(max(second)) from decisions
where cluster_id = $1 and {folded} group by all
"""
_VIOLATED = f"""
with around as (
  select {", ".join(name for name in SECOND_COLUMNS if name not in ("second", "source"))},
         {IS_VIOLATED} as is_violated,
         epoch_ms(second) as second, coalesce(source, 'log') as source,
         case quota_type when '{QuotaType.CONTROLLER_MUTATION}' then {CONTROLLER_ID} else broker_id end as teller
  from decisions where cluster_id = $1 and {{folded}}
    and epoch_ms(second) >= $2 - {LOG_SILENCE_MS} and epoch_ms(second) <= $3
), told as (
  select teller, quota_type, max(second) as log_ms from around where source = 'log' group by all
)
select around.* from around left join told using (teller, quota_type)
where is_violated and second >= $2
  and (source = 'log' or log_ms is null or second - log_ms > {LOG_SILENCE_MS})
"""  # noqa: S608 - names and numbers of ours
_ENDS = "select epoch_ms(min(second)), epoch_ms(max(second)) from decisions where cluster_id = $1"


def rebuild_violations(
    settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int] | None = None
) -> None:
    """Replace the episodes that a stretch touches, in one commit.

    An episode belongs to it from `episode_gap` before the stretch on, because it might be joined to another one
    there; and it is made of all its seconds, in the stretch or not.

    Args:
        settings: the configuration.
        from_ms: start of the stretch, epoch ms.
        to_ms: its end, exclusive.
        not_folded_from_ms: seconds that JUDGE has written and not folded yet stay its own: by cluster, broker and
            source where they begin.
    """
    retried(lambda: _rebuild(settings, from_ms, to_ms, not_folded_from_ms or {}))


def rebuild_all_violations(settings: Settings) -> None:
    """Make the episodes of all decisions anew; those of dates that `decisions` does not hold any more stay."""
    with open_tables(settings, DECISIONS.name) as tables:
        first_ms, last_ms = tables.query(_ENDS, [settings.cluster_id]).rows[0]
    if first_ms is not None:
        for start_ms in range(first_ms, last_ms + 1, _DAY_MS):
            rebuild_violations(settings, start_ms, min(start_ms + _DAY_MS, last_ms + 1_000))


def _rebuild(settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int]) -> None:
    gap_ms = settings.stream.episode_gap
    first_ms, last_ms = from_ms - gap_ms, to_ms + gap_ms
    table = delta_table(settings, VIOLATIONS.name)
    with open_tables(settings, DECISIONS.name, VIOLATIONS.name) as tables:
        old = tables.query(_OLD, [settings.cluster_id, first_ms, last_ms]).dicts()
        starts_ms = min([first_ms, *(row["start_ms"] for row in old)])
        ends_ms = max([last_ms, *(row["last_ms"] for row in old)])
        made = [
            each
            for each in _made(tables, settings, starts_ms, ends_ms, not_folded_from_ms)
            if each.episode.start_ms <= last_ms and each.episode.last_ms >= first_ms
        ]
    kept = {each.episode_id for each in made}
    gone = [row for row in old if row["episode_id"] not in kept]
    if not (made or gone):
        return
    rows = [*map(violation_row, made), *gone]
    source = arrow_rows(VIOLATIONS, rows).append_column(
        "is_gone", pa.array([False] * len(made) + [True] * len(gone), pa.bool_())
    )
    columns = {name: f"new.{name}" for name in VIOLATIONS.names}
    (
        table.merge(source, ON_SAME, source_alias="new", target_alias="old")
        .when_matched_delete("new.is_gone")
        .when_matched_update(columns, "not new.is_gone")
        .when_not_matched_insert(columns, "not new.is_gone")
        .execute()
    )
    sync_commit(table)


def _made(
    tables: Tables, settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int]
) -> Iterator[Violation]:
    is_folded = _is_folded(not_folded_from_ms)
    newest = tables.query(_NEWEST.format(folded=is_folded), [settings.cluster_id]).rows
    clocks = Clocks(
        {(cluster_id, broker_id, source): time_ms for cluster_id, broker_id, source, time_ms in newest}
    )
    violated = tables.query(_VIOLATED.format(folded=is_folded), [settings.cluster_id, from_ms, to_ms])
    yield from folded(map(piece_of_second, violated.dicts()), clocks, settings.stream.episode_gap)


def _is_folded(not_folded_from_ms: Mapping[Place, int]) -> str:
    """As a condition of SQL."""
    parts = [
        f"not (broker_id = {int(broker_id)} and (coalesce(source, 'log') = 'log') = {source == LOG} "
        f"and epoch_ms(second) >= {int(time_ms)})"
        for (_, broker_id, source), time_ms in not_folded_from_ms.items()
    ]
    return " and ".join(parts) or "true"
