"""How fresh and how complete the tables are: enforcement checks this before it changes anything.

A broker without traffic has no seconds to decide, but its shipper sends a sign of life every second. It counts as
decided as far as MEASURE has closed seconds of other brokers, because all share one watermark. A broker that was heard
from within the last hour, but not now, may be throttling or serving any client: the view is incomplete then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Evidence, Quota
from kquota_spark.enforce.guards import Situation
from kquota_spark.enforce.log_state import HOUR_MS
from kquota_spark.enforce.policies.context import type_of
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity, parse_entity
from kquota_spark.model.quotas.quota_types import QuotaKey, parse_key
from kquota_spark.schema.harm import IS_THROTTLED
from kquota_spark.store.reading import Tables, utc_text

HEARD_OF_MS = 3_600_000
"""Time in which a broker must have been heard from to be expected now, ms."""
_BROKERS = """
with heard as (
  select broker_id, max(record_time_ms) as heard_ms from requests
  where cluster_id = $1 and broker_id is not null and record_time_ms >= $2 and not coalesce(is_out_of_time, false)
  group by all
), used as (
  select broker_id, epoch_ms(max(second)) as used_ms from usage
  where cluster_id = $1 and epoch_ms(second) >= $2 group by all
), decided as (
  select broker_id, epoch_ms(max(second)) as decided_ms from decisions
  where cluster_id = $1 and epoch_ms(second) >= $2 group by all
)
select broker_id, heard_ms, used_ms, decided_ms from heard full join used using (broker_id)
full join decided using (broker_id) where broker_id >= 0 order by broker_id
"""
_KNOWING = ("enforcement_log", "quota_rules", "decisions", "usage", "requests")
"""Tables that may have rows of a cluster, small ones first."""
_CLUSTERS = "select distinct cluster_id from {table}"
_RULES_KNOWN = "select epoch_ms(min(known_through)) from quota_sources where cluster_id = ?"
_PROBLEMS = """
select entity, problem from quota_changes where cluster_id = ?
qualify row_number() over (partition by entity order by version desc, observed_at desc) = 1 and problem is not null
order by entity
"""
_EDITS = """
select entity, "key", max(epoch_ms(coalesce(changed_before, changed_at))) as edited_ms from quota_changes
where cluster_id = ? and "key" is not null group by all
"""
_SECONDS = f"""
select epoch_ms(min(second)) as from_ms, epoch_ms(max(second)) + 1000 as to_ms, count(*) as seconds,
       count(*) filter (is_certain and not coalesce(is_rules_behind, false)) as certain_seconds,
       count(*) filter ({IS_THROTTLED}) as throttled_seconds,
       max(rate_per_s) as peak_rate_per_s
from decisions where cluster_id = ? and epoch_ms(second) >= ? and ({{which}})
"""  # noqa: S608 - SQL of ours


def situation(settings: Settings, now_ms: int, *, silent_after_ms: int) -> Situation:
    """How fresh and how complete the tables are now.

    Args:
        settings: the configuration, with the place of the tables.
        now_ms: the wall clock, epoch ms.
        silent_after_ms: time without a sign of life after which a broker is silent, ms.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    cluster = [settings.cluster_id]
    with Tables(settings) as tables:
        for name in ("usage", "decisions", "requests"):
            # Lines of the JMX collector are not requests.
            if name == "requests" and not settings.kafka.has_log:
                tables.open_if_there(name)
            else:
                tables.open(name, newer_than_ms=now_ms - HEARD_OF_MS)
        tables.open("quota_rules")
        tables.open("quota_changes")
        brokers = tables.query(_BROKERS, [*cluster, now_ms - HEARD_OF_MS]).dicts()
        known_ms = tables.query(_RULES_KNOWN, cluster).rows[0][0]
        problems = [
            f"/config/{entity}: {problem}" for entity, problem in tables.query(_PROBLEMS, cluster).rows
        ]
        edited = dict(_edits(tables.query(_EDITS, cluster).rows))
    problems += _silent(brokers, now_ms - silent_after_ms)
    return Situation(
        decided_through_ms=decided_through_ms(brokers),
        rules_known_through_ms=known_ms,
        is_view_whole=not problems,
        problems=tuple(problems),
        edited_at_ms=edited,
    )


def require_known_cluster(settings: Settings) -> None:
    """Check that a table has rows of the cluster in the settings: an enforcer of the cluster uses the same tables.

    A table that cannot be read is no error here: a person must be able to freeze even then.

    Raises:
        UserError: no table has such rows; the message names the clusters in the tables.
    """
    known: set[str] = set()
    with Tables(settings) as tables:
        for name in _KNOWING:
            try:
                if tables.open_if_there(name):
                    known.update(row[0] for row in tables.query(_CLUSTERS.format(table=name)).rows)
            except UserError:
                return
            if settings.cluster_id in known:
                return
    others = f", which hold {', '.join(sorted(known))}" if known else ""
    file = settings.file or "the settings of the enforcer (--config FILE)"
    raise UserError(
        f"cluster {settings.cluster_id} is in none of the tables under {settings.tables}{others}: "
        f"check tables and cluster_id in {file}"
    )


def decided_through_ms(brokers: list[dict[str, int | None]]) -> int | None:
    """The time up to which the seconds of all brokers are decided, epoch ms; None before the first decision."""
    closed_ms = max((row["used_ms"] for row in brokers if row["used_ms"] is not None), default=None)
    if closed_ms is None:
        return None
    return min(_of_broker(row, closed_ms) for row in brokers)


def _of_broker(row: dict[str, int | None], closed_ms: int) -> int:
    used_ms, decided_ms, heard_ms = row["used_ms"], row["decided_ms"], row["heard_ms"]
    if used_ms is not None and used_ms > (decided_ms or 0):
        return decided_ms or 0
    # All its used seconds are decided, up to the newest closed second, but not after its last sign of life.
    return min(closed_ms, max(time_ms for time_ms in (heard_ms, used_ms, decided_ms) if time_ms is not None))


def _silent(brokers: list[dict[str, Any]], since_ms: int) -> Iterator[str]:
    for row in brokers:
        last_ms = max(row[name] for name in ("heard_ms", "used_ms", "decided_ms") if row[name] is not None)
        if last_ms < since_ms:
            yield f"broker {row['broker_id']} was last heard of at {utc_text(last_ms)}"


def _edits(rows: list[tuple[Any, ...]]) -> Iterator[tuple[Quota, int]]:
    for entity, key, edited_ms in rows:
        parsed, parsed_key = parse_entity(entity), parse_key(key)
        if isinstance(parsed, Entity) and isinstance(parsed_key, QuotaKey):
            yield Quota(parsed, parsed_key), edited_ms


def override_evidence(settings: Settings, quota: Quota, now_ms: int) -> Evidence:
    """The evidence for a person's change of a quota, as the guards need it.

    It counts the decided seconds of the last hour under this quota. If there are none, it counts those of its type, and
    otherwise all. A quota that is new to the cluster has no decisions of its own, so the evidence shows only that the
    audit works.

    Raises:
        UserError: the decisions cannot be read.
    """
    since_ms = now_ms - HOUR_MS
    kind = type_of(quota.key).value
    with Tables(settings) as tables:
        tables.open("decisions", since_ms)
        for which, values in (
            ("quota_type = ? and rule = ?", [kind, str(quota.entity)]),
            ("quota_type = ?", [kind]),
            ("true", []),
        ):
            sql = _SECONDS.format(which=which)
            [found] = tables.query(sql, [settings.cluster_id, since_ms, *values]).dicts()
            if found["seconds"]:
                peak = found.pop("peak_rate_per_s")
                is_known = "rule" in which and peak is not None
                return Evidence(**found, numbers={"peak_rate_per_s": peak} if is_known else {})
    return Evidence(since_ms, now_ms, 0, 0, 0)
