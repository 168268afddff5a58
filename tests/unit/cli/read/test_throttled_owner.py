"""`kquota throttled` with a file of owners: each bucket names the owners of its throttled clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

ROLE = "arn:aws:sts::123456789012:assumed-role/orders/"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """alice is throttled in seconds 1 and 5, bob and carol as client batch in 2, two sessions of a role in 3."""
    harm = {
        "observed_total_throttle_ms": 1_000,
        "observed_throttle_ms": 1_000,
        "observed_throttled_requests": 1,
    }
    rows = [
        decision(1, users=["alice"], client_ids=["etl"], **harm),
        decision(5, users=["alice"], client_ids=["etl"], **harm),
        decision(
            2, bucket_user="", bucket_client_id="batch", users=["bob", "carol"], client_ids=["batch"], **harm
        ),
        decision(
            3,
            bucket_user="",
            bucket_client_id="app",
            users=[f"{ROLE}i-1", f"{ROLE}i-2"],
            client_ids=["app"],
            **harm,
        ),
        decision(4, bucket_user="dave", users=["dave"], client_ids=["web"]),
    ]
    clients = [(1, "alice", "etl"), (5, "alice", "etl"), (2, "bob", "batch"), (2, "carol", "batch"),
               (3, f"{ROLE}i-1", "app"), (3, f"{ROLE}i-2", "app"), (4, "dave", "web")]  # fmt: skip
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", *(usage(at_s, user=user, client_id=name) for at_s, user, name in clients))
    (tmp_path / "owners.yaml").write_text(
        f"""owners:
  - {{name: payments, users: [alice], valid_to: {json.dumps("2026-11-21T05:40:03Z")}}}
  - {{name: platform, users: [alice, carol]}}
  - {{name: orders, users: ["arn:aws:sts::[0-9]+:assumed-role/orders/.*"]}}
""",
        encoding="utf-8",
    )
    assert T0_MS == 1_795_239_600_000  # 05:40:00: alice moves to another owner after second 2
    path = tmp_path / "kquota.yaml"
    path.write_text(
        f"cluster_id: demo\ntables: {tmp_path}\nowners: {tmp_path}/owners.yaml\n", encoding="utf-8"
    )
    return path


def rows(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert main(["throttled", *options, "--output", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def test_each_client_is_mapped_to_its_owner_in_its_throttled_seconds(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        (row["bucket_user"], row["bucket_client_id"]): row["owner"]
        for row in rows(capsys, "--config", str(config))
    }
    assert found == {
        ("alice", ""): "payments, platform",
        ("", "batch"): "platform, unowned",
        ("", "app"): "orders",
    }


@pytest.mark.parametrize(
    ("owner", "buckets"),
    [("payments", ["alice"]), ("platform", ["alice", "batch"]), ("orders", ["app"]), ("unowned", ["batch"])],
)
def test_an_owner_chooses_the_buckets_with_its_clients(
    owner: str, buckets: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(capsys, "--config", str(config), "--owner", owner)
    assert sorted(row["bucket_user"] or row["bucket_client_id"] for row in found) == buckets


def test_a_wide_table_has_the_owner_and_a_table_of_80_columns_fits(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["throttled", "--config", str(config)])
    wide = capsys.readouterr().out
    assert "owner" in "".join(wide.splitlines()[:2]) and "payments, platform" in wide
    monkeypatch.setenv("COLUMNS", "80")
    main(["throttled", "--config", str(config)])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_without_a_file_there_is_no_column_and_no_filter(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"owner" in row for row in rows(capsys, "--tables", str(config.parent))} == {False}
    assert main(["throttled", "--tables", str(config.parent), "--owner", "payments"]) == 1
    line = "kquota: --owner: the settings name no file of owners: set owners in the settings file\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("mode", ["--episodes", "--seconds"])
def test_an_owner_is_refused_where_it_would_be_ignored(
    mode: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["throttled", "--config", str(config), mode, "--owner", "payments"]) == 1
    line = f"kquota: throttled: --owner works only without {mode}\n"
    assert capsys.readouterr() == ("", line)


def test_an_unknown_owner_is_one_line_with_the_nearest_name(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["throttled", "--config", str(config), "--owner", "payment"]) == 1
    assert capsys.readouterr().err == (
        f"kquota: --owner: 'payment' is no owner in {config.parent}/owners.yaml, did you mean 'payments'?\n"
    )
