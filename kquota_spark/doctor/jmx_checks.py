"""What `kquota doctor` asks of the samples of JMX: can they be read, are they new, is each rate judged."""

from __future__ import annotations

from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.process.check import Check, fail, ok, warn
from kquota_spark.store.reading import Tables, utc_text

_SLACK_MS = 30_000
_SAMPLES = """
select cluster_id, count(*) filter (kind = 'sample') as samples, count(distinct broker_id) as brokers,
       count(distinct (topic, "partition", kafka_offset)) as messages,
       count(*) filter (kind = 'unreadable') as unreadable, count(*) filter (kind = 'other') as other,
       max(sample_time_ms) as newest_ms,
       count(*) filter (kind = 'sample' and coalesce(
         if(quota_type in ('produce', 'fetch'), byte_rate, null),
         if(quota_type = 'request', request_time_percent, null),
         if(quota_type = 'controller_mutation', mutation_rate, null),
         if(quota_type = 'connection' and ip is not null, connection_rate, null)) is not null) as rates
from jmx_samples group by cluster_id order by cluster_id
"""
_JUDGED = "select count(*) from decisions where source = 'jmx' and cluster_id = ?"
_REASONS = """
select coalesce(reason, 'no reason given'), count(*) as times from jmx_samples
where kind = 'unreadable' and cluster_id = ? group by all order by times desc, 1 limit 3
"""


def jmx_checks(tables: Tables, settings: Settings, now_ms: int) -> list[Check]:
    """Messages that were read, the age of the newest sample, and rates against decisions."""
    rows = tables.query(_SAMPLES).dicts()
    if not rows:
        advice = "start a collector (kquota collect jmx) and the audit"
        return [warn("JMX samples", "the table jmx_samples is empty", advice)]
    checks = []
    for row in rows:
        checks += [_read(tables, row), _judged(tables, row, settings, now_ms)]
        if row["newest_ms"] is not None:
            checks.append(_age(row, settings, now_ms))
    return checks


def _read(tables: Tables, row: dict[str, Any]) -> Check:
    evidence = (
        f"{row['cluster_id']}: {row['messages']:,} messages gave {row['samples']:,} samples, of "
        f"brokers: {row['brokers']}; {row['other']:,} hold no metric of a quota, {row['unreadable']:,} cannot be read"
    )
    if not row["unreadable"]:
        return ok("JMX samples", evidence)
    reasons = tables.query(_REASONS, [row["cluster_id"]]).rows
    evidence += ": " + "; ".join(f"{times:,} {reason}" for reason, times in reasons)
    is_all = not row["samples"]
    advice = "kept in jmx_samples with reason and raw_text: correct the collector's configuration"
    return (fail if is_all else warn)("JMX samples", evidence, advice)


def _judged(tables: Tables, row: dict[str, Any], settings: Settings, now_ms: int) -> Check:
    judged = int(tables.query(_JUDGED, [row["cluster_id"]]).rows[0][0])
    evidence = f"{row['cluster_id']}: {judged:,} decisions of {row['rates']:,} sampled rates"
    age_ms = now_ms - (row["newest_ms"] or 0)
    if judged < row["rates"] and age_ms > 3 * settings.stream.trigger + _SLACK_MS:
        return fail("JMX judged", evidence, "the query jmx stands still: see its log")
    return ok("JMX judged", evidence)


def _age(row: dict[str, Any], settings: Settings, now_ms: int) -> Check:
    age_ms = max(now_ms - row["newest_ms"], 0)
    evidence = f"{row['cluster_id']}: through {utc_text(row['newest_ms'])}, {age_ms // 1_000:,} s behind"
    if age_ms <= 3 * settings.stream.trigger + 3 * settings.collect.jmx.interval + _SLACK_MS:
        return ok("JMX age", evidence)
    advice = "does the collector run, and the query jmx? (expected after a finished run)"
    return warn("JMX age", evidence, advice)
