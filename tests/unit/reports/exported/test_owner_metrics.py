"""The exporter counts the seconds of each owner of the file, from 0 on, and shows what is left of its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.reports.exported import Exporter
from tests.support.tables.table_rows import decision, usage, write_table


def exporter(root: Path) -> Exporter:
    path = root / "owners.yaml"
    path.write_text(
        "owners: [{name: payments, users: [alice]}, {name: search, users: [bob], objective_percent: 99}]\n",
        "utf-8",
    )
    return Exporter(root, owners=str(path))


def throttle(offset_s: int, longest_ms: int) -> dict[str, Any]:
    return decision(
        offset_s,
        observed_throttle_ms=longest_ms,
        observed_throttled_requests=1,
        observed_total_throttle_ms=longest_ms,
    )


def of_owners(found: dict[str, dict[tuple[str, ...], float]], name: str) -> dict[str, float]:
    return {owner: value for (owner,), value in found[f"owner_{name}"].items()}


def test_counters_begin_at_0_and_count_each_second_once(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", *(usage(at_s) for at_s in range(100)))
    shown = exporter(tmp_path)
    first = shown.judged(5, throttle(0, 100), decision(99))
    # An owner without traffic has series from the start, so that the first seconds of it are not lost to increase().
    assert of_owners(first, "active_seconds_total") == {"payments": 0.0, "search": 0.0, "unowned": 0.0}
    assert of_owners(first, "allowed_throttled_ratio") == {
        "payments": 0.005,
        "search": 0.01,
        "unowned": 0.005,
    }
    # 100 s allow 0.5 s; one second was throttled.
    assert of_owners(first, "budget_seconds") == {"payments": 0.5}
    assert of_owners(first, "budget_left_ratio") == {"payments": -1.0}
    write_table(tmp_path, "usage", usage(100), usage(100, broker_id=2), usage(101, user="bob"))
    second = shown.judged(20, throttle(100, 1_500), decision(109))
    assert of_owners(second, "active_seconds_total") == {"payments": 2.0, "search": 1.0, "unowned": 0.0}
    assert of_owners(second, "throttled_seconds_total") == {"payments": 2.0, "search": 0.0, "unowned": 0.0}
    # Nothing new: the counters stay.
    third = shown.judged(35)
    assert of_owners(third, "throttled_seconds_total") == {"payments": 2.0, "search": 0.0, "unowned": 0.0}


def test_without_a_file_of_owners_there_is_no_series_of_an_owner(tmp_path: Path) -> None:
    write_table(tmp_path, "usage", usage(0))
    found = Exporter(tmp_path).judged(5, decision(0))
    assert [name for name in found if name.startswith("owner_")] == []
