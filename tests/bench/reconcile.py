"""Whether `decisions` adds up to the generated lines, and when its last row was committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from tests.bench.lines import COUNTED_OF_20


def expected_decided(lines: int) -> int:
    """How many of so many generated lines a bandwidth quota counts."""
    return lines // 20 * sum(COUNTED_OF_20.values())


def requests_decided(tables: Path) -> int:
    """Requests in `decisions` so far; 0 before the table is there."""
    if not DeltaTable.is_deltatable(str(tables / "decisions")):
        return 0
    [(requests,)] = _query(tables, "decisions", "SELECT coalesce(sum(requests), 0)::BIGINT FROM rows")
    return int(requests)


def last_commit_s(table: Path) -> float:
    """When the newest version of a table was committed, epoch seconds."""
    return float(DeltaTable(str(table)).history(1)[0]["timestamp"]) / 1_000


def problems(tables: Path, lines: int) -> list[str]:
    """What does not add up between the generated lines and the tables."""
    judged = dict(
        _query(tables, "decisions", "SELECT quota_type, sum(requests)::BIGINT FROM rows GROUP BY 1")
    )
    amounts = dict(_query(tables, "decisions", "SELECT quota_type, sum(amount)::BIGINT FROM rows GROUP BY 1"))
    charged = dict(
        _query(tables, "requests", "SELECT quota_type, sum(charged_bytes)::BIGINT FROM rows "
               "WHERE kind = 'request' AND quota_type IS NOT NULL GROUP BY 1")
    )  # fmt: skip
    kinds = dict(_query(tables, "requests", "SELECT kind, count(*) FROM rows GROUP BY 1"))
    found = []
    if kinds.get("request") != lines:
        found.append(f"requests: {kinds}, expected {lines} requests")
    for quota_type, of_20 in COUNTED_OF_20.items():
        expected = lines // 20 * of_20
        if judged.get(quota_type) != expected:
            found.append(f"decisions: {judged.get(quota_type)} {quota_type}, expected {expected}")
        if amounts.get(quota_type) != charged.get(quota_type):
            found.append(
                f"bytes of {quota_type}: {amounts.get(quota_type)}, charged {charged.get(quota_type)}"
            )
    return found


def _query(tables: Path, name: str, sql: str) -> list[tuple[Any, ...]]:
    rows: Any = DeltaTable(str(tables / name)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.execute(sql).fetchall()
