"""The column `why` of `kquota throttled`: a few words about the cause, the same cause as on the report's cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.store.rows import entity_columns
from tests.support.reports.gathered_report import Row, rule, throttled
from tests.support.tables.table_rows import T0_MS, decision, second, usage, write_table


def of(user: str, **changed: Any) -> Row:
    """The columns of a bucket of one user with one client id."""
    return {"bucket_user": user, "users": [user], "rule": f"users/{user}", **changed}


def edit(at_s: int, before: float | None, after: float) -> Row:
    """An edit of bob's quota to produce."""
    return {
        "cluster_id": "demo", **entity_columns(Entity(user="bob")), "key": "producer_byte_rate", "value": after,
        "previous_value": before, "changed_at": second(at_s), "version": at_s, "source": "zookeeper",
        "observed_at": second(at_s),
    }  # fmt: skip


def why(
    capsys: pytest.CaptureFixture[str], root: Path, rows: list[Row], edits: list[Row], *, last_s: int = 99
) -> dict[str, str | None]:
    """The cause of each user's bucket."""
    write_table(root, "decisions", *rows)
    write_table(root, "usage", usage(0), usage(last_s))
    write_table(root, "quota_changes", *edits)
    assert main(["throttled", "--tables", str(root), "--output", "json"]) == 0
    return {row["bucket_user"]: row["why"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_a_cut_comes_before_clients_that_share_and_these_before_the_kind_of_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = {"client_ids": ["a", "b"]}
    rows = [throttled(at_s, **of("bob", **shared)) for at_s in range(10)]
    rows += [throttled(at_s, **of("carol", **shared)) for at_s in range(10)]
    rows += [throttled(at_s, amount=1_000_000, **of("dave")) for at_s in range(5)]
    rows += [
        decision(at_s, amount=1_000_000, **of("dave")) for at_s in range(5, 10)
    ]  # 5 of 10 seconds: half of them
    rows += [throttled(at_s, **of("erin")) for at_s in range(4)]
    rows += [decision(at_s, **of("erin")) for at_s in range(4, 10)]  # 4 of 10 seconds
    rows += [throttled(at_s, **of("frank")) for at_s in range(9)]  # fewer than the 10 seconds of a window
    assert why(capsys, tmp_path, rows, [edit(1, 2_000_000.0, 1_000_000.0)]) == {
        "bob": "cut from 2.0 MB/s at 05:40:01",
        "carol": "two client ids share it",
        "dave": "steady load above the limit",
        "erin": "bursts",
        "frank": None,
    }


@pytest.mark.parametrize(
    ("edits", "cause"),
    [
        ([edit(1, 500_000.0, 1_000_000.0)], "steady load above the limit"),  # a raise
        ([edit(1, None, 1_000_000.0)], "steady load above the limit"),  # a new quota
        (
            [edit(1, 2e6, 500_000.0), edit(2, 500_000.0, 1e6)],
            "steady load above the limit",
        ),  # cut, then raised
    ],
)
def test_only_a_newest_edit_that_lowered_the_limit_is_a_cut(
    edits: list[Row], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [throttled(at_s, amount=1_000_000, **of("bob")) for at_s in range(10)]
    assert why(capsys, tmp_path, rows, edits) == {"bob": cause}


def test_a_cut_has_its_day_if_the_tables_are_of_two_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    midnight_s = 18 * 3_600 + 20 * 60  # T0 is 05:40:00
    rows = [throttled(midnight_s - 5 + at_s, **of("bob")) for at_s in range(10)]
    found = why(capsys, tmp_path, rows, [edit(midnight_s, 2e6, 1e6)], last_s=midnight_s + 4)
    assert found == {"bob": "cut from 2.0 MB/s at 11-22 00:00:00"}


def test_the_card_of_the_report_and_the_column_have_one_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1,210,000 bytes in each of 60 seconds under 1,000,000 per second: 121 %
    rows = [throttled(at_s, amount=1_210_000, **of("alice")) for at_s in range(60)]
    write_table(tmp_path, "quota_rules", rule(Entity(user="alice"), producer_byte_rate=1e6))
    assert why(capsys, tmp_path, rows, [], last_s=59) == {"alice": "takes 121 % of its limit"}
    page = gather_report(
        Settings(cluster_id="demo", tables=str(tmp_path)), Period(T0_MS, T0_MS + 60_000), made_at_ms=T0_MS + 60_000
    )  # fmt: skip
    (card,) = (one for one in page.recommendations if one.entity == "users/alice")
    assert card.cause == "many connections that wait at once, or clients that do not wait"


def test_the_cause_is_whole_on_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why(capsys, tmp_path, [throttled(at_s, **of("bob")) for at_s in range(10)], [edit(1, 2e6, 1e6)])
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["throttled", "--tables", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # 10 x 100 ms in all 10 judged seconds; the limit goes before the number of requests
    assert "user bob  produce  1.0 MB/s  1.00 s    100.0 %  cut from 2.0 MB/s at 05:40:01" in lines
    assert max(map(len, lines)) <= 80
