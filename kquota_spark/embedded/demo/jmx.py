"""What the demo found without a request log: read from the tables, printed, and kept as `summary.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.store.reading import open_tables

_OPEN_COUNTS = """
    SELECT
      (SELECT count(*) FROM jmx_samples WHERE byte_rate IS NOT NULL) AS rates,
      (SELECT count(*) FROM decisions WHERE quota_type IN ('produce', 'fetch')) AS judged,
      (SELECT count(*) FROM decisions WHERE quota_used_percent > 100) AS violated,
      (SELECT coalesce(sum(violated_seconds), 0)::BIGINT FROM violations) AS in_episodes
"""
_TOTALS = """
    SELECT
      (SELECT count(*) FROM jmx_samples WHERE kind = 'sample') AS samples,
      (SELECT count(*) FROM jmx_samples WHERE kind = 'unreadable') AS unreadable,
      (SELECT count(*) FROM decisions) AS decisions,
      (SELECT count(*) FROM violations) AS violations,
      (SELECT count(*) FROM violations WHERE end_time IS NULL) AS open_violations,
      (SELECT list(DISTINCT level ORDER BY level) FROM decisions WHERE level IS NOT NULL) AS levels_seen
"""
_BUCKETS = """
    SELECT quota_type, bucket_user, bucket_client_id, rule, count(*) AS samples,
      count(*) FILTER (quota_used_percent > 100) AS violated, max(rate_per_s) AS peak_rate_per_s,
      max(quota_used_percent) AS peak_percent, max(observed_throttle_ms) AS throttle_ms
    FROM decisions WHERE limit_per_s IS NOT NULL GROUP BY ALL ORDER BY peak_percent DESC, 1, 2, 3, 4
"""
_ROWS = 12


def is_all_judged(settings: Settings) -> bool:
    """Whether every sampled rate has gone through all hops."""
    with open_tables(settings, "jmx_samples", "decisions", "violations") as tables:
        found = tables.query(_OPEN_COUNTS).dicts()[0]
    return bool(found["rates"] == found["judged"] > 0 and found["violated"] == found["in_episodes"])


def summary(settings: Settings, demo_seconds: float, config: Path, path: Path) -> str:
    """Write the summary and return it for people."""
    with open_tables(settings, "jmx_samples", "decisions", "violations") as tables:
        found = tables.query(_TOTALS).dicts()[0]
        buckets = tables.query(_BUCKETS).dicts()
    kept = {"demo_seconds": demo_seconds, "source": "jmx", **found, "buckets": buckets}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    lines = [
        "",
        (
            f"samples {found['samples']:,}   unreadable messages {found['unreadable']:,}   decisions "
            f"{found['decisions']:,}   violations {found['violations']:,} ({found['open_violations']} open)   "
            f"levels {', '.join(map(str, found['levels_seen']))}"
        ),
        "",
        f"{'by the brokers themselves':32}{'type':9}{'samples':>8}{'violated':>9}{'peak':>11}{'throttle':>10}",
        *map(_line, buckets[:_ROWS]),
        "  (peak: percent of the limit in force; throttle: the longest mean of a minute)",
        "",
        f"tables: {Path(settings.tables).absolute()}",
        "try next:",
        f"  .venv/bin/kquota top --config {config}",
        f"  .venv/bin/kquota violations --config {config}",
        f"  .venv/bin/kquota decisions --config {config} --user alice",
        f"  .venv/bin/kquota doctor --config {config}",
    ]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    who = " / ".join(name for name in (row["bucket_user"], row["bucket_client_id"]) if name)
    kind = "" if row["bucket_user"] else "client "
    throttle = "-" if row["throttle_ms"] is None else f"{row['throttle_ms']:,} ms"
    return (
        f"  {kind + who:30.30}{row['quota_type']:9}{row['samples']:>8,}{row['violated']:>9,}"
        f"{row['peak_percent']:>9.1f} %{throttle:>10}"
    )
