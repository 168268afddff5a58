"""`kquota shadow`: who would be throttled and who freed; the same figures as `kquota whatif` at the recorded times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.formats.exchange import declared
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.schema.figures import FIGURES
from tests.site.page_tables import SHADOW
from tests.support.logs.captures import KRAFT41
from tests.support.pipeline.capture_shadow import write_shadow
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import T0_MS, decision, second, write_table


def _row(offset_s: int, user: str, after_ms: int, before_ms: int, **changed: Any) -> dict[str, Any]:
    """A second of a bucket under the shadow quotas: its total delay, and the one in force."""
    return {
        "cluster_id": "demo", "event_date": second(0).date(), "broker_id": 1, "quota_type": "produce",
        "bucket_user": user, "bucket_client_id": "", "second": second(offset_s), "shadow": "lower",
        "shadow_version": "v2", "level": 3, "rule": f"users/{user}", "limit_per_s": 500.0, "rate_per_s": 600.0,
        "requests": 3, "throttle_ms": after_ms, "throttled_requests": int(after_ms > 0),
        "total_throttle_ms": after_ms, "unknown_requests": 0, "is_near": False, "is_warm": True,
        "enforced_limit_per_s": 900.0, "enforced_throttled_requests": int(before_ms > 0),
        "enforced_total_throttle_ms": before_ms, **changed,
    }  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Ten seconds. alice waits in second 2 and 3 (100 ms each), bob in second 5 (300 ms), carol never."""
    harm = {(2, "alice"): 100, (3, "alice"): 100, (5, "bob"): 300}
    rows = []
    for at_s in range(10):
        for user in ("alice", "bob", "carol"):
            delay_ms = harm.get((at_s, user), 0)
            rows.append(
                decision(at_s, bucket_user=user, limit_per_s=900.0, rule=f"users/{user}", total_throttle_ms=delay_ms,
                         throttled_requests=int(delay_ms > 0), observed_total_throttle_ms=delay_ms + 1)
            )  # fmt: skip
    write_table(tmp_path, "decisions", *rows)
    return tmp_path


def _answer(tables: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["shadow", "--tables", str(tables), "--output", "json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _figures(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = (
        "bucket_user",
        "effect",
        "delay_ms",
        "delay_by_replay_ms",
        "delay_by_replay_after_ms",
        "near_seconds",
    )
    return [tuple(row[name] for name in names) for row in found["rows"]]


def test_each_bucket_with_a_difference_has_its_delay_before_and_after(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(
        tables, "shadow_decisions",
        # alice: 100 ms more in second 3; second 2 is the same under both, so it has no row. carol: throttled once.
        _row(3, "alice", 200, 100), _row(5, "bob", 0, 300), _row(7, "carol", 50, 0),
        # Left out: the warm-up of this version, and the version before.
        _row(0, "dave", 70, 0, is_warm=False), _row(1, "dave", 70, 0, shadow_version="v1"),
    )  # fmt: skip
    found = _answer(tables, capsys)
    assert _figures(found) == [
        ("bob", "freed", 310, 300, 0, 0),
        ("alice", "more", 210, 200, 300, 0),
        ("carol", "throttled", 10, 0, 50, 0),
    ]
    assert (found["shadow"], found["shadow_version"]) == ("lower", "v2")
    assert {name for name in found["rows"][0] if "delay" in name or "throttl" in name} <= {*FIGURES}
    assert main(["shadow", "--tables", str(tables)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    whole = "3 buckets with a difference: 1 newly throttled, 1 freed, 1 more"
    assert f"{whole}; total delay by replay 500 ms -> at most 350 ms" in out


def test_near_seconds_and_unknown_requests_are_left_open(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tables, "shadow_decisions", _row(4, "carol", 0, 0, is_near=True, unknown_requests=2))
    found = _answer(tables, capsys)
    assert _figures(found) == [("carol", "open", 10, 0, 0, 1)]
    assert found["rows"][0]["unknown_requests"] == 2


def test_a_type_and_a_period_choose(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tables, "shadow_decisions", _row(3, "alice", 200, 100), _row(5, "bob", 0, 300))
    assert _figures(_answer(tables, capsys, "--type", "fetch")) == []
    since = str(T0_MS + 4_000)
    assert [row[0] for row in _figures(_answer(tables, capsys, "--since", since))] == ["bob"]


def test_without_a_shadow_it_says_what_to_set(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shadow", "--tables", str(tables)]) == 1
    assert "set quotas.shadow to a file of quotas, and start the audit again" in capsys.readouterr().err


def test_it_has_the_figures_of_whatif_at_the_recorded_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = write_capture(tmp_path, KRAFT41)
    assert write_shadow(settings, KRAFT41, SHADOW, ShadowPin("proposal", "v1", 0)) > 100
    proposal = tmp_path / "proposal.yaml"
    proposal.write_text(declared.write(dict[Any, Any](SHADOW)), "utf-8")
    place = ["--tables", str(tmp_path), "--output", "json", "--limit", "0"]
    assert main(["whatif", "--quotas", str(proposal), *place]) == 0
    of_whatif = json.loads(capsys.readouterr().out)["rows"]
    assert main(["shadow", *place]) == 0
    of_shadow = json.loads(capsys.readouterr().out)["rows"]
    bucket = ("quota_type", "bucket_user", "bucket_client_id")
    figures = (
        "delay_by_replay_ms", "delay_by_replay_after_ms", "throttled_requests_by_replay",
        "throttled_requests_by_replay_after",
    )  # fmt: skip
    expected = {
        tuple(row[name] for name in bucket): tuple(row[name] or 0 for name in figures)
        for row in of_whatif
        if row["loop"] == "open"
    }
    found = {tuple(row[name] for name in bucket): tuple(row[name] for name in figures) for row in of_shadow}
    assert {key: expected[key] for key in found} == found
    differing = {key for key, (before, after, *_) in expected.items() if before != after}
    assert differing <= set(found)
    assert len(differing) >= 3
