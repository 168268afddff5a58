"""The episodes of a capture, put together from the decisions that `capture_tables` wrote: no Spark."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.store.storage import delta_table
from tests.support.tables.table_rows import write_table

GAP_S = 10
_BUCKET = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id")


def write_violations(settings: Settings) -> None:
    """Write `violations` as EPISODES would: a pause of more than `GAP_S` seconds ends an episode."""
    rows = delta_table(settings, "decisions").rows().to_pylist()
    clock = max(row["second"] for row in rows)
    over = [row for row in rows if (row["quota_used_percent"] or 0) > 100]
    over.sort(key=lambda row: (*(row[name] for name in _BUCKET), row["second"]))
    found = []
    for _, group in groupby(over, key=lambda row: tuple(row[name] for name in _BUCKET)):
        episode: list[dict[str, Any]] = []
        for row in group:
            if episode and (row["second"] - episode[-1]["second"]).total_seconds() > GAP_S:
                found.append(_violation(episode, clock))
                episode = []
            episode.append(row)
        found.append(_violation(episode, clock))
    write_table(Path(settings.tables), "violations", *found)


def _violation(episode: list[dict[str, Any]], clock: Any) -> dict[str, Any]:
    first, last = episode[0], episode[-1]
    muted_until = max(
        row["second"] + timedelta(seconds=max(1, -(-row["observed_throttle_ms"] // 1_000))) for row in episode
    )
    is_open = (clock - last["second"]).total_seconds() <= GAP_S
    names = {
        name: sorted({each for row in episode for each in row[name]}) for name in ("users", "client_ids")
    }
    return {
        **{name: first[name] for name in (*_BUCKET, "event_date", "level", "rule")}, **names, "source": "log",
        "episode_id": f"{'/'.join(str(first[name]) for name in _BUCKET)} {first['second']}",
        "start_time": first["second"], "last_second": last["second"],
        "end_time": None if is_open else muted_until, "muted_until": muted_until,
        "limit_per_s": min(row["limit_per_s"] for row in episode),
        "peak_rate_per_s": max(row["rate_per_s"] for row in episode),
        "peak_quota_used_percent": max(row["quota_used_percent"] for row in episode),
        "violated_seconds": len(episode), "throttled_ms": sum(row["total_throttle_ms"] for row in episode),
        "throttled_requests": sum(row["throttled_requests"] for row in episode),
        "observed_throttled_ms": sum(row["observed_total_throttle_ms"] for row in episode),
        "observed_throttled_requests": sum(row["observed_throttled_requests"] for row in episode),
        "observed_longest_throttle_ms": max(row["observed_throttle_ms"] for row in episode),
    }  # fmt: skip
