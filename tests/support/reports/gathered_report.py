"""The report over a few literal rows, ten seconds from T0 unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.sections import AuditReport
from kquota_spark.store.rows import entity_columns
from tests.support.tables.table_rows import T0_MS, decision, second, usage, write_table

Row = dict[str, Any]


def gathered(
    root: Path,
    *,
    usages: Sequence[Row] = (),
    decisions: Sequence[Row] = (),
    seconds: int = 10,
    tenant: str | None = None,
    top: int = 20,
    heat_rows: int = 40,
    **others: Sequence[Row],
) -> AuditReport:
    """Write the tables and gather; a request in the first and in the last second makes the period covered."""
    ends: Row = {"user": "ends", "client_id": "ends", "amount": 0, "requests": 0}
    write_table(root, "usage", usage(0, **ends), usage(seconds - 1, **ends), *usages)
    quiet: Row = dict.fromkeys(("limit_per_s", "quota_used_percent", "rule", "level"))
    quiet |= {"bucket_user": "ends", "rate_per_s": 0.0, "amount": 0, "users": ["ends"]}
    quiet |= {"requests_judged": 0, "requests_agreeing": 0}
    write_table(root, "decisions", decision(0, **quiet), decision(seconds - 1, **quiet), *decisions)
    for name, rows in others.items():
        write_table(root, name, *rows)
    return gather_report(
        Settings(cluster_id="demo", tables=str(root)),
        Period(T0_MS, T0_MS + seconds * 1_000),
        made_at_ms=T0_MS + seconds * 1_000,
        tenant=tenant,
        top=top,
        heat_rows=heat_rows,
    )


def throttled(offset_s: int, throttle_ms: int = 100, **changed: Any) -> Row:
    """A second of alice's bucket with one throttle."""
    return decision(offset_s, **{
        "throttle_ms": throttle_ms, "throttled_requests": 1, "total_throttle_ms": throttle_ms,
        "observed_throttle_ms": throttle_ms, "observed_throttled_requests": 1, "rate_per_s": 1_100_000.0,
        "quota_used_percent": 110.0, **changed,
    })  # fmt: skip


def jmx(offset_s: int, **changed: Any) -> Row:
    """A sample of alice's bucket: what JMX does not show it is null."""
    row = decision(offset_s)
    told = ("cluster_id", "event_date", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "second",
            "level", "rule", "limit_per_s", "rate_per_s", "quota_used_percent", "users")  # fmt: skip
    return (
        {name: row[name] for name in told}
        | {"is_certain": False, "source": "jmx", "client_ids": []}
        | changed
    )


def rule(entity: AnyEntity, *, since_s: int = -86_400, until_s: int | None = None, **values: float) -> Row:
    """A period of an entity's quotas."""
    times = {"valid_from": second(since_s), "valid_to": None if until_s is None else second(until_s)}
    return {
        "cluster_id": "demo",
        **entity_columns(entity),
        **times,
        "version": 7,
        "source": "zookeeper",
        **values,
    }
