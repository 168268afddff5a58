"""The tables of a small run of the audit, and what `kquota doctor` finds in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    heartbeat,
    request,
    run,
    source,
    usage,
    write_table,
)

NOW_MS = T0_MS + 10_000

# Two seconds of one request each, a heartbeat, and a request that is not yet measured.
REQUESTS = (
    request(0),
    request(1, T0_MS + 1_000),
    heartbeat(2, T0_MS + 1_500),
    request(3, T0_MS + 5_000),
    request(4, quota_type=None, api_key=3),  # METADATA: no bandwidth quota counts it
)
USAGE = (usage(0), usage(1))
DECISIONS = (decision(0), decision(1))


def tables(
    root: Path,
    requests: tuple[dict[str, Any], ...] = REQUESTS,
    *,
    usages: tuple[dict[str, Any], ...] = USAGE,
    decisions: tuple[dict[str, Any], ...] = DECISIONS,
    violations: tuple[dict[str, Any], ...] = (),
    rules: tuple[dict[str, Any], ...] = (source(9),),
) -> Path:
    write_table(root, "requests", *requests)
    write_table(root, "usage", *usages)
    write_table(root, "decisions", *decisions)
    write_table(root, "violations", *violations)
    write_table(root, "quota_rules", *rules)
    return root


def findings(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and (status, what, evidence) of everything that is not ok."""
    code = run("doctor", "--tables", str(root), "--output", "json")
    rows = json.loads(capsys.readouterr().out)["rows"]
    return code, [(row["status"], row["what"], row["evidence"]) for row in rows if row["status"] != "ok"]
