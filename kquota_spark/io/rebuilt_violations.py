"""Episodes made anew from the decisions: after a restatement, and where their query lost its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.config.settings import Settings
from kquota_spark.io.spark import sql_literal, table, table_path
from kquota_spark.pipeline.episodes import LOG_SILENCE_S, only_one_source, to_violations, with_source
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CLOCK = ("cluster_id", "broker_id", "source")


def rebuild_violations(
    session: SparkSession, settings: Settings, from_ms: int, to_ms: int, folded_version: int | None
) -> None:
    """Replace the episodes that a stretch touches, in one commit.

    An episode belongs to it from `episode_gap` before the stretch on, because it might be joined to another one
    there; and it is made of all its seconds, in the stretch or not.

    Args:
        session: Spark.
        settings: the configuration.
        from_ms: start of the stretch, epoch ms.
        to_ms: its end, exclusive.
        folded_version: the query `episodes` has read `decisions` through this version: seconds that it has not
            folded yet stay its own. None if nobody folds.
    """
    gap_ms = settings.stream.episode_gap
    first, last = from_ms - gap_ms, to_ms + gap_ms
    touched = f"unix_millis(start_time) <= {last} AND unix_millis(last_second) >= {first}"
    mine = f"cluster_id = {sql_literal(settings.cluster_id)}"
    old = table(session, settings, VIOLATIONS.name).where(f"{mine} AND {touched}")
    ends = old.agg(F.unix_millis(F.min("start_time")), F.unix_millis(F.max("last_second"))).head()
    assert ends is not None
    starts_ms, ends_ms = min(first, ends[0] or first), max(last, ends[1] or last)
    decisions = _folded(session, settings, folded_version).where(mine)
    clock = decisions.where("second = folded_through").withColumn("quota_used_percent", F.lit(None))
    around = decisions.where(f"unix_millis(second) BETWEEN {starts_ms - LOG_SILENCE_S * 1_000} AND {ends_ms}")
    within = around.where(f"unix_millis(second) >= {starts_ms}").transform(only_one_source, around)
    rows = within.unionByName(clock).drop("folded_through")
    nothing_open = session.createDataFrame([], VIOLATIONS.ddl)
    made = to_violations(rows, nothing_open, gap_ms / 1_000).where(touched).persist()
    try:
        gone = old.join(made.select("episode_id"), "episode_id", "left_anti").select(*VIOLATIONS.names)
        changes = made.withColumn("is_gone", F.lit(False)).unionByName(
            gone.withColumn("is_gone", F.lit(True))
        )
        _merge(session, settings, changes)
    finally:
        made.unpersist()


def rebuild_all_violations(session: SparkSession, settings: Settings) -> None:
    """Make the episodes of all decisions anew; those of dates that `decisions` does not hold any more stay."""
    decisions = table(session, settings, DECISIONS.name)
    mine = decisions.where(f"cluster_id = {sql_literal(settings.cluster_id)}")
    ends = mine.agg(F.unix_millis(F.min("second")), F.unix_millis(F.max("second"))).head()
    if ends is not None and ends[0] is not None:
        rebuild_violations(session, settings, ends[0], ends[1] + 1_000, None)


def _folded(session: SparkSession, settings: Settings, version: int | None) -> DataFrame:
    """Decisions as they are now, as far as the query has folded them, with its newest second of each clock."""
    now = table(session, settings, DECISIONS.name).transform(with_source)
    then = now
    if version is not None:
        reader = session.read.format("delta").option("versionAsOf", version)
        then = reader.load(table_path(settings, DECISIONS.name))
        then = (
            then.transform(with_source)
            if "source" in then.columns
            else then.withColumn("source", F.lit("log"))
        )
    bounds = then.groupBy(*_CLOCK).agg(F.max("second").alias("folded_through"))
    return now.join(F.broadcast(bounds), list(_CLOCK)).where("second <= folded_through")


def _merge(session: SparkSession, settings: Settings, changes: DataFrame) -> None:
    columns: dict[str, str | Column] = {name: f"new.{name}" for name in VIOLATIONS.names}
    (
        DeltaTable.forPath(session, table_path(settings, VIOLATIONS.name))
        .alias("old")
        .merge(changes.alias("new"), "old.episode_id = new.episode_id AND old.event_date = new.event_date")
        .whenMatchedDelete("new.is_gone")
        .whenMatchedUpdate(set=columns)
        .whenNotMatchedInsert(condition="NOT new.is_gone", values=columns)
        .execute()
    )
