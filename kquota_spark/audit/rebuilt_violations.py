"""Episodes made anew from the decisions: after a restatement, and where JUDGE lost its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from kquota_spark.audit.violations import (
    LOG_SILENCE_MS,
    ON_SAME,
    SECOND_COLUMNS,
    Place,
    piece_of_second,
    violation_row,
)
from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.episodes import LOG, Clocks, Violation, folded
from kquota_spark.schema.harm import IS_VIOLATED
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store.commits import retried
from kquota_spark.store.reading import Tables, open_tables
from kquota_spark.store.rows import arrow_rows
from kquota_spark.store.storage import delta_table

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
