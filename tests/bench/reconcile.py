"""Whether `decisions` adds up to the generated lines, and when its last row was committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable


class DecidedRequests:
    """How many requests are in `decisions`; each file is read once, so that asking costs the job little.

    Args:
        tables: the folder of all tables.
    """

    def __init__(self, tables: Path) -> None:
        self._place = str(tables / "decisions")
        self._table: DeltaTable | None = None
        self._by_file: dict[str, int] = {}

    def count(self) -> int:
        """Requests so far; 0 before the table is there."""
        if self._table is None:
            if not DeltaTable.is_deltatable(self._place):
                return 0
            self._table = DeltaTable(self._place)
        self._table.update_incremental()
        for file in self._table.file_uris():
            if file not in self._by_file:
                requests = pq.read_table(file, columns=["requests"]).column("requests")
                self._by_file[file] = pc.sum(requests).as_py() or 0
        return sum(self._by_file.values())


def last_commit_s(table: Path) -> float:
    """When the newest version of a table was committed, epoch seconds."""
    return float(DeltaTable(str(table)).history(1)[0]["timestamp"]) / 1_000


def problems(
    tables: Path, lines: int, expected: Mapping[str, int], *, are_all_requests: bool = True
) -> list[str]:
    """Differences between the generated lines and the tables.

    Args:
        tables: the folder of all tables.
        lines: how many were generated.
        expected: how many of them a quota counts, by quota type.
        are_all_requests: whether `requests` has a row for every line. Without, bytes are compared with `usage`.
    """
    judged = _by_type(tables, "decisions", "requests")
    amounts = _by_type(tables, "decisions", "amount")
    charged = _by_type(tables, "usage", "amount")
    found = []
    if are_all_requests:
        charged = _by_type(tables, "requests", "charged_bytes", "kind = 'request'")
        kinds = dict(_query(tables, "requests", "SELECT kind, count(*) FROM rows GROUP BY 1"))
        if kinds.get("request") != lines:
            found.append(f"requests: {kinds}, expected {lines} requests")
    for quota_type, count in expected.items():
        if judged.get(quota_type) != count:
            found.append(f"decisions: {judged.get(quota_type)} {quota_type}, expected {count}")
        if amounts.get(quota_type) != charged.get(quota_type):
            found.append(
                f"bytes of {quota_type}: {amounts.get(quota_type)}, charged {charged.get(quota_type)}"
            )
    return found


def _by_type(tables: Path, name: str, column: str, condition: str = "true") -> dict[str, int]:
    sql = f"SELECT quota_type, sum({column})::BIGINT FROM rows WHERE quota_type IS NOT NULL AND {condition} GROUP BY 1"
    return dict(_query(tables, name, sql))


def _query(tables: Path, name: str, sql: str) -> list[tuple[Any, ...]]:
    rows: Any = DeltaTable(str(tables / name)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.execute(sql).fetchall()
