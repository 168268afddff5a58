"""Rebuilds the episodes of the table `violations` from all decisions of a period."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kquota_spark.audit.violations.episodes import (
    LOG,
    LOG_SILENCE_MS,
    ended_sql,
    folded_sql,
    log_spans_sql,
    of_one_source_sql,
    violated_sql,
)
from kquota_spark.audit.violations.judged import Place
from kquota_spark.audit.violations.stored import ON_SAME, violation_rows, write_episodes
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store.commits import retried
from kquota_spark.store.reading import open_tables
from kquota_spark.store.storage import delta_table

_DAY_MS = 86_400_000
_OLD = """
select episode_id, event_date, epoch_ms(start_time) as start_ms, epoch_ms(last_second) as last_ms from violations
where cluster_id = $1 and epoch_ms(start_time) <= $3 and epoch_ms(last_second) >= $2
"""
_NEWEST = """
select cluster_id, broker_id, source, epoch_ms(max(second)) as newest_ms from decisions
where cluster_id = $1 and {folded} group by all
"""
_MADE = """
with clocks as ({newest}), around as (
  select * from decisions where cluster_id = $1 and {folded}
    and epoch_ms(second) >= $2 - {silence_ms} and epoch_ms(second) <= $3
), log_spans as ({log_spans}), violated as ({violated}), of_one_source as ({of_one_source}), within as (
  select * from of_one_source where start_ms >= $2
), folded as ({made})
select * from ({ended}) where start_ms <= $5 and last_ms >= $4
"""
_ENDS = "select epoch_ms(min(second)), epoch_ms(max(second)) from decisions where cluster_id = $1"


def rebuild_violations(
    settings: Settings, from_ms: int, to_ms: int, not_folded_from_ms: Mapping[Place, int] | None = None
) -> None:
    """Replace the episodes that a period touches, in one commit.

    This includes episodes within `episode_gap` of the period, because they might be joined to another one there. An
    episode is rebuilt from all its seconds, inside the period or not.

    Args:
        settings: the configuration.
        from_ms: start of the period, epoch ms.
        to_ms: end of the period, epoch ms, exclusive.
        not_folded_from_ms: first second (epoch ms) by cluster, broker and source that the job has written but not
            folded yet; seconds from there on are left to the job.
    """
    retried(lambda: _rebuild(settings, from_ms, to_ms, not_folded_from_ms or {}))


def rebuild_all_violations(settings: Settings) -> None:
    """Rebuild the episodes of all decisions; those of dates that `decisions` no longer holds are kept."""
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
        asked = [settings.cluster_id, starts_ms, ends_ms, first_ms, last_ms]
        made = violation_rows(tables.arrow(_made_sql(gap_ms, _is_folded(not_folded_from_ms)), asked))
    kept = set(made["episode_id"].to_pylist())
    removed = [
        {
            "episode_id": row["episode_id"],
            "event_date": row["event_date"],
            "start_time": row["start_ms"] * 1_000,
        }
        for row in old
        if row["episode_id"] not in kept
    ]
    if made.num_rows or removed:
        write_episodes(table, made, pa.Table.from_pylist(removed, schema=VIOLATIONS.arrow_schema()), ON_SAME)


def _made_sql(gap_ms: int, is_folded: str) -> str:
    """SQL: the episodes of a period, from all decisions.

    Its parameters are the cluster, the period of the seconds, and the period that an episode must touch.
    """
    return _MADE.format(
        newest=_NEWEST.format(folded=is_folded),
        folded=is_folded,
        silence_ms=LOG_SILENCE_MS,
        log_spans=log_spans_sql("around"),
        violated=violated_sql("around"),
        of_one_source=of_one_source_sql("violated", "log_spans"),
        made=folded_sql("within", gap_ms),
        ended=ended_sql("folded", "clocks", gap_ms),
    )


def _is_folded(not_folded_from_ms: Mapping[Place, int]) -> str:
    """SQL: condition for decisions that are folded already."""
    parts = [
        f"not (broker_id = {int(broker_id)} and (source = 'log') = {source == LOG} "
        f"and epoch_ms(second) >= {int(time_ms)})"
        for (_, broker_id, source), time_ms in not_folded_from_ms.items()
    ]
    return " and ".join(parts) or "true"
