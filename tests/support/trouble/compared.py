"""What a troubled run judged, beside a run without trouble, before anything is recomputed.

A second may differ only where the tables themselves mark it: its quotas were not known yet, or lines of it came late.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from deltalake import DeltaTable

HORIZON_S = 12
"""Seconds for which a late line leaves its bucket's ring different: eleven samples of one second, and the next."""
_TABLES = ("requests", "usage", "decisions", "violations", "jmx_samples")
_MARKED = f"""
CREATE TABLE marked AS
WITH judged AS (SELECT * FROM one.decisions UNION ALL SELECT * FROM other.decisions),
read_lines AS (
    SELECT broker_id, make_timestamp(record_time_ms // 1000 * 1000000) AS second, count(*) AS lines
    FROM (
        SELECT DISTINCT broker_id, record_time_ms, log_time_ms, connection, correlation_id
        FROM one.requests WHERE kind = 'request' AND quota_type IS NOT NULL
    ) GROUP BY ALL
),
counted AS (
    SELECT run, broker_id, second::TIMESTAMP AS second, sum(requests) AS lines FROM (
        SELECT 1 AS run, * FROM one.usage WHERE quota_type IN ('produce', 'fetch')
        UNION ALL SELECT 2, * FROM other.usage WHERE quota_type IN ('produce', 'fetch')
    ) GROUP BY ALL
),
late AS (
    SELECT broker_id, second::TIMESTAMP AS second FROM judged WHERE late > 0
    UNION
    SELECT r.broker_id, r.second FROM read_lines r, (VALUES (1), (2)) AS runs(run)
    LEFT JOIN counted c ON c.run = runs.run AND c.broker_id = r.broker_id AND c.second = r.second
    WHERE coalesce(c.lines, 0) < r.lines
)
SELECT DISTINCT broker_id, second FROM (
    SELECT broker_id, second::TIMESTAMP AS second FROM judged WHERE is_rules_behind
    UNION ALL
    SELECT broker_id, second + to_seconds(after) FROM late, range({HORIZON_S + 1}) AS horizon(after)
)
"""


class Compared(NamedTuple):
    """How two runs differ in what no mark excuses.

    Attributes:
        differences: rows that only one run has, by table; five of each at most.
        seconds: seconds of brokers that were judged.
        marked: of these, seconds that may differ.
    """

    differences: dict[str, list[tuple[Any, ...]]]
    seconds: int
    marked: int


def compared(one: Path, other: Path) -> Compared:
    """Compare the tables below two folders.

    Args:
        one: the folder above `tables` of the troubled run.
        other: that of the run without trouble.
    """
    connection = duckdb.connect()
    for schema, root in (("one", one), ("other", other)):
        connection.execute(f"CREATE SCHEMA {schema}")
        for name in _TABLES:
            rows = DeltaTable(str(root / "tables" / name)).to_pyarrow_dataset().to_table()  # noqa: F841
            connection.execute(f"CREATE TABLE {schema}.{name} AS SELECT * FROM rows")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(_MARKED)
    at_second = "EXISTS (FROM marked m WHERE m.broker_id = t.broker_id AND m.second = t.second::TIMESTAMP)"
    within = (
        "EXISTS (FROM marked m WHERE m.broker_id = t.broker_id AND m.second BETWEEN "
        "t.start_time::TIMESTAMP - INTERVAL 1 SECOND AND t.end_time::TIMESTAMP + INTERVAL 1 SECOND)"
    )
    excused = {"requests": "false", "jmx_samples": "false", "usage": at_second, "decisions": at_second}
    excused["violations"] = f"t.end_time IS NULL OR {within}"
    differences = {name: _differences(connection, name, excuse) for name, excuse in excused.items()}
    [[seconds]] = connection.execute(
        "SELECT count(DISTINCT (broker_id, second)) FROM other.decisions"
    ).fetchall()
    [[marked]] = connection.execute(
        f"SELECT count(DISTINCT (broker_id, second)) FROM other.decisions t WHERE {at_second}"
    ).fetchall()
    return Compared({name: rows for name, rows in differences.items() if rows}, seconds, marked)


def _differences(connection: duckdb.DuckDBPyConnection, name: str, excuse: str) -> list[tuple[Any, ...]]:
    one, other = (
        f"SELECT * FROM {schema}.{name} t WHERE NOT coalesce({excuse}, false)" for schema in ("one", "other")
    )
    return connection.execute(
        f"(SELECT 'one', * FROM ({one} EXCEPT ALL {other})) UNION ALL "
        f"(SELECT 'other', * FROM ({other} EXCEPT ALL {one})) LIMIT 6"
    ).fetchall()
