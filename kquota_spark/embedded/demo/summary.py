"""What the demo found: read from the tables, printed, and kept as `summary.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.replay.agreement import error_summary
from kquota_spark.schema.harm import DELAY_MS, IS_VIOLATED
from kquota_spark.schema.tables import LEFT_OUT
from kquota_spark.store.reading import Tables, open_tables

_OPEN_COUNTS = f"""
    SELECT
      (SELECT coalesce(sum(coalesce(lines, 1)), 0)::BIGINT FROM requests
       WHERE quota_type IS NOT NULL AND NOT is_out_of_time) AS counted,
      (SELECT coalesce(sum(requests + duplicates), 0)::BIGINT FROM usage
       WHERE quota_type IN ('produce', 'fetch')) AS measured,
      (SELECT coalesce(sum(requests), 0)::BIGINT FROM usage) AS to_judge,
      (SELECT coalesce(sum(requests + late), 0)::BIGINT FROM decisions) AS judged,
      (SELECT count(*) FROM decisions WHERE {IS_VIOLATED}) AS violated,
      (SELECT coalesce(sum(violated_seconds), 0)::BIGINT FROM violations) AS in_episodes
"""  # noqa: S608 - a condition of ours
_AGREEMENT = """
    SELECT quota_type, sum(requests_judged)::BIGINT AS requests_judged,
      sum(requests_agreeing)::BIGINT AS agreeing, sum(judged_throttled)::BIGINT AS throttled_by_broker,
      sum(judged_throttled - false_negative + false_positive)::BIGINT AS throttled_by_model,
      sum(false_positive)::BIGINT AS false_positive, sum(false_negative)::BIGINT AS false_negative,
      sum(judged_near_limit)::BIGINT AS near_limit, sum(uncertain)::BIGINT AS uncertain,
      sum(uncertain_wrong)::BIGINT AS uncertain_wrong, sum(inferred)::BIGINT AS inferred,
      sum(excluded)::BIGINT AS excluded, sum(late)::BIGINT AS late,
      flatten(list(throttle_errors_ms)) AS errors
    FROM decisions GROUP BY quota_type ORDER BY quota_type DESC
"""
LIVE = f"""
    SELECT broker_id, quota_type, bucket_user, bucket_client_id, max_by(limit_per_s, second) AS limit_per_s,
      max_by(rate_per_s, second) AS rate_per_s, max_by(quota_used_percent, second) AS quota_used_percent,
      coalesce(sum({DELAY_MS}), max(observed_throttle_ms), 0)::BIGINT AS throttled_ms
    FROM decisions WHERE limit_per_s IS NOT NULL
      AND epoch_ms(second) > (SELECT max(epoch_ms(second)) FROM decisions) - 10000
    GROUP BY ALL ORDER BY quota_used_percent DESC NULLS LAST
"""  # noqa: S608 - names of ours


def is_all_judged(settings: Settings) -> bool:
    """Whether every counted line has gone through all hops."""
    with open_tables(settings, "requests", "usage", "decisions", "violations") as tables:
        found = tables.query(_OPEN_COUNTS).dicts()[0]
    return bool(
        found["counted"] == found["measured"] > 0
        and found["to_judge"] == found["judged"]
        and found["violated"] == found["in_episodes"]
    )


def summarise(settings: Settings, demo_seconds: float) -> dict[str, Any]:
    """The summary as it goes into summary.json."""
    with open_tables(settings, "requests", "decisions", "violations") as tables:
        kinds = dict(
            tables.query("SELECT kind, sum(coalesce(lines, 1))::BIGINT FROM requests GROUP BY kind").rows
        )
        episodes = tables.query("SELECT count(*), count(*) FILTER (end_time IS NULL) FROM violations").rows[0]
        decisions = tables.query("SELECT count(*) FROM decisions").rows[0][0]
        levels = [
            row[0]
            for row in tables.query(
                "SELECT DISTINCT level FROM decisions WHERE level IS NOT NULL ORDER BY level"
            ).rows
        ]
        by_type = _agreement(tables)
    return {
        "demo_seconds": demo_seconds,
        "requests": kinds.get("request", 0) + kinds.get(LEFT_OUT, 0),
        "unreadable": kinds.get("unreadable", 0),
        "heartbeats": kinds.get("heartbeat", 0),
        "decisions": decisions,
        "violations": episodes[0],
        "open_violations": episodes[1],
        "levels_seen": levels,
        "agreement": by_type,
        "tables": str(Path(settings.tables).absolute()),
    }


def _agreement(tables: Tables) -> dict[str, Any]:
    found = {}
    for row in tables.query(_AGREEMENT).dicts():
        errors = row.pop("errors") or []
        found[row.pop("quota_type")] = {**row, "throttle_error_ms": error_summary(errors)}
    return found


def summary_text(summary: dict[str, Any], config: Path) -> str:
    """The summary for people; types of quotas that judged nothing are left out."""
    judged = {name: tally for name, tally in summary["agreement"].items() if tally["requests_judged"]}
    lines = [
        "",
        (
            f"requests {summary['requests']:,}   unreadable lines {summary['unreadable']:,}   "
            f"decisions {summary['decisions']:,}   violations {summary['violations']:,} "
            f"({summary['open_violations']} open)   levels {', '.join(map(str, summary['levels_seen']))}"
        ),
        "",
        "agreement with the broker        "
        + "".join(f"{name.removeprefix('controller_'):>12}" for name in judged),
    ]
    for title, key in _SHOWN:
        values = [tally[key] for tally in judged.values()]
        lines.append(f"  {title:31}" + "".join(f"{value:>12,}" for value in values))
    for part in ("median", "p99", "max"):
        values = [tally["throttle_error_ms"][part] for tally in judged.values()]
        shown = "".join(f"{'-' if value is None else format(value, ','):>12}" for value in values)
        lines.append(f"  {f'throttle error {part}, ms':31}{shown}")
    lines += [
        "  (inferred: a throttled fetch comes back empty, its size is not in the log; it is not judged)",
        "",
        f"tables: {summary['tables']}",
        "try next:",
        f"  .venv/bin/kquota top --config {config}",
        f"  .venv/bin/kquota violations --config {config}",
        f"  .venv/bin/kquota decisions --config {config} --throttled --user alice",
        f"  .venv/bin/kquota doctor --config {config}",
    ]
    return "\n".join(lines)


_SHOWN = (
    ("requests judged", "requests_judged"),
    ("throttled by the broker", "throttled_by_broker"),
    ("throttled by the replay", "throttled_by_model"),
    ("false: only the replay did", "false_positive"),
    ("false: only the broker did", "false_negative"),
    ("judged within 5 % of the limit", "near_limit"),
    ("uncertain, counted apart", "uncertain"),
    ("inferred", "inferred"),
)
