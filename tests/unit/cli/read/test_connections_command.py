"""`kquota connections`: one row per user, client id and connection, most total delay first, with the sum below."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from tests.support.tables.table_rows import T0_MS, request, second, write_table

FIRST, OTHER = "10.0.0.1:9092-10.0.0.7:50001-0-1", "10.0.0.1:9092-10.0.0.7:50002-1-2"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Alice waits on two connections at once, bob once; a copy, a follower and a forwarded request do not count."""
    throttled: dict[str, Any] = {"connection": FIRST, "observed_throttle_ms": 3_000}
    bob = {"user": "bob", "client_id": "app", "connection": "10.0.0.1:9092-10.0.0.8:50003-0-3"}
    write_table(
        tmp_path,
        "requests",
        request(0, T0_MS, connection=FIRST),
        request(1, T0_MS + 1_000, **throttled),
        request(2, T0_MS + 1_000, **{**throttled, "correlation_id": 1}),  # the same line once more
        request(3, T0_MS + 1_000, connection=OTHER, observed_throttle_ms=4_000, charged_bytes=500),
        request(4, T0_MS + 2_000, observed_throttle_ms=1_500, **bob),
        request(5, T0_MS + 4_000, observed_throttle_ms=None, charged_bytes=None, api_key=3, **bob),
        request(6, T0_MS + 4_000, observed_throttle_ms=9_000, is_from_follower=True),
        request(7, T0_MS + 4_000, observed_throttle_ms=9_000, is_forwarded=True),
        request(8, T0_MS + 9_000, observed_throttle_ms=9_000, is_out_of_time=True),
    )
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], tables: Path, *options: str) -> tuple[int, str, str]:
    code = main(["connections", "--tables", str(tables), *options])
    out, err = capsys.readouterr()
    return code, out, err


def figures(out: str) -> list[tuple[Any, ...]]:
    names = ("user", "connection", "requests", "charged_bytes", "throttled_requests", "delay_ms")
    return [tuple(row[name] for name in names) for row in json.loads(out)["rows"]]


def test_a_row_is_one_connection_and_the_most_delay_comes_first(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, tables, "--output", "json")
    assert figures(out) == [
        ("alice", OTHER, 1, 500, 1, 4_000),
        ("alice", FIRST, 2, 2_000, 1, 3_000),
        ("bob", "10.0.0.1:9092-10.0.0.8:50003-0-3", 2, 1_000, 1, 1_500),
    ]
    seen = [(row["first_ms"], row["last_ms"]) for row in json.loads(out)["rows"]]
    assert seen == [  # T0 is 05:40:00
        ("2026-11-21T05:40:01Z", "2026-11-21T05:40:01Z"),
        ("2026-11-21T05:40:00Z", "2026-11-21T05:40:01Z"),
        ("2026-11-21T05:40:02Z", "2026-11-21T05:40:04Z"),
    ]


def test_the_sum_of_all_is_below_and_explains_more_delay_than_time(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, tables, "--limit", "1")
    assert max(map(len, out.splitlines())) <= 80
    assert "10.0.0.7:50002" in out and "10.0.0.7:50001" not in out
    # 4 + 3 + 1.5 s, between the requests at T0 and T0 + 4 s.
    text = " ".join(out.split())
    assert "3 connections, 1 shown: --limit 0 shows all; total delay 8.50 s in 4 s from 2026" in text
    assert "more delay than time: several connections wait at once" in text
    _, out, _ = run(capsys, tables, "--user", "bob")
    assert "1 connection; total delay 1.50 s in 2 s from" in " ".join(out.split()) and "more delay" not in out


@pytest.mark.parametrize(
    ("options", "connections"),
    [
        (("--user", "alice"), [OTHER, FIRST]),
        (("--client-id", "app"), ["10.0.0.1:9092-10.0.0.8:50003-0-3"]),
        (("--until", second(1).isoformat()), [FIRST]),
        (("--since", second(2).isoformat()), ["10.0.0.1:9092-10.0.0.8:50003-0-3"]),
    ],
)
def test_names_and_times_choose(
    options: tuple[str, ...], connections: list[str], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, tables, *options, "--output", "json")
    assert [row["connection"] for row in json.loads(out)["rows"]] == connections


def test_no_rows_and_an_empty_period_are_one_line(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, tables, "--until", second(0).isoformat())
    assert (code, out) == (0, "no connections with requests before 2026-11-21 05:40:00 UTC\n")
    code, _, err = run(capsys, tables, "--since", second(9).isoformat(), "--until", second(8).isoformat())
    assert (code, err) == (
        1, "kquota: --since 2026-11-21 05:40:09 UTC is not before --until 2026-11-21 05:40:08 UTC\n",
    )  # fmt: skip


def test_requests_without_a_row_are_counted(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none: dict[str, Any] = {"user": None, "client_id": None, "connection": None, "correlation_id": None}
    write_table(tables, "requests", request(9, kind="left_out", lines=1_234, first_offset=5, **none))
    _, out, _ = run(capsys, tables)
    assert "without requests that have no row of their own (tables.requests): 1,234" in " ".join(out.split())


def test_a_connection_id_of_another_form_is_shown_whole_and_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "requests", request(0, connection="a\x1b[31m-b"))
    _, out, _ = run(capsys, tmp_path)
    assert "a\\x1b[31m-b" in out and "\x1b" not in out
