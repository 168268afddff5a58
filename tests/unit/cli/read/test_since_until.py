"""`--since` and `--until` mean the same in every reading command: from the first on, and before the second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.model.quotas.entities import Entity
from tests.support.reports.gathered_report import rule
from tests.support.tables.table_rows import T0_MS, decision, request, second, usage, violation, write_table


def config(root: Path) -> str:
    """Settings that name the tables and their cluster."""
    path = root / "kquota.yaml"
    path.write_text(f"tables: {root}\ncluster_id: demo\n", encoding="utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> dict[str, Any]:
    assert main([*words, "--config", config(root), "--output", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One decision and one second of usage in each of ten seconds; episodes of 3 s from the seconds 0, 4 and 8 on."""
    root = tmp_path_factory.mktemp("tables")
    write_table(root, "decisions", *(decision(at_s) for at_s in range(10)))
    write_table(root, "usage", *(usage(at_s, amount=100 + at_s) for at_s in range(10)))
    write_table(root, "violations", *(violation(at_s, 3) for at_s in (0, 4, 8)))
    return root


def at(at_s: int) -> str:
    return second(at_s).isoformat()


@pytest.mark.parametrize(
    ("words", "column", "seconds"),
    [
        (("decisions",), "second", [5, 4, 3]),
        (("usage", "--by-second"), "second", [5, 4, 3]),
        # The episodes of the seconds 0 to 3 and 4 to 7 touch the period; the one from 8 on begins after it.
        (("violations",), "start_time", [4, 0]),
    ],
)
def test_rows_are_from_since_on_and_before_until(
    words: tuple[str, ...], column: str, seconds: list[int], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, tables, *words, "--since", at(3), "--until", at(6))
    assert [row[column] for row in found["rows"]] == [at(at_s).replace("+00:00", "Z") for at_s in seconds]


def test_sums_and_the_agreement_are_of_the_period(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, tables, "usage", "--since", at(3), "--until", at(6))
    assert found["rows"][0]["amount"] == 103 + 104 + 105
    assert found["agreement"]["requests_judged"] == 3  # one per second
    found = answer(capsys, tables, "usage", "--until", at(2))
    assert found["rows"][0]["amount"] == 100 + 101


@pytest.mark.parametrize("names", [("--since", "--until"), ("--from", "--to")])
def test_agreement_has_its_older_names_too(
    names: tuple[str, str], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, tables, "agreement", names[0], at(3), names[1], at(6))
    assert [row["requests_judged"] for row in found["rows"]] == [3]


@pytest.mark.parametrize(
    "command",
    ["violations", "decisions", "usage", "findings", "agreement", "throttled", "timeline", "report"],
)
def test_a_period_that_ends_before_it_begins_is_one_line(
    command: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = ["--user", "alice"] if command == "timeline" else []
    code = main([command, *who, "--tables", str(tables), "--since", at(6), "--until", at(6)])
    same = "2026-11-21 05:40:06 UTC"
    assert (code, capsys.readouterr().err) == (1, f"kquota: --since {same} is not before --until {same}\n")


def test_an_empty_answer_names_both_bounds(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["decisions", "--tables", str(tables), "--since", "2026-11-20", "--until", "2026-11-21"])
    assert capsys.readouterr().out.startswith("no decisions match --since 2026-11-20 --until 2026-11-21; ")


def test_usage_before_until_is_that_of_the_day_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # --until is second 1: the day before it begins at second -86,399.
    write_table(tmp_path, "usage", usage(-86_400, amount=5), usage(-86_399, amount=20), usage(0, amount=300),
                usage(1, amount=4_000))  # fmt: skip
    assert answer(capsys, tmp_path, "usage", "--until", at(1))["rows"][0]["amount"] == 320
    main(["usage", "--tables", str(tmp_path), "--until", at(1)])
    assert "\nthe last day before --until: --since asks for more\n" in capsys.readouterr().out


def test_findings_read_nothing_from_until_on_and_use_the_rules_of_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # From second 5 on alice has a quota, and bob is seen.
    write_table(tmp_path, "usage", usage(0), usage(5, user="bob", client_id="b"))
    write_table(tmp_path, "requests", request(1))
    of_alice = rule(Entity(user="alice"), since_s=5, producer_byte_rate=1e6)
    write_table(tmp_path, "quota_rules", rule(Entity(user="carol"), producer_byte_rate=1e6), of_alice)

    def found(*options: str) -> list[tuple[str, str]]:
        return [
            (row["kind"], row["subject"]) for row in answer(capsys, tmp_path, "findings", *options)["rows"]
        ]

    assert found() == [("UNMETERED", "user bob, client id b")]
    assert found("--until", at(5)) == [("UNMETERED", "user alice, client id etl")]


def test_report_takes_them_instead_of_a_period(
    tables: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    both = ("--since", at(3), "--until", at(6))
    assert main(["report", "--config", config(tables), "--to", "-", "--format", "json", *both]) == 0
    (row,) = json.loads(capsysbinary.readouterr().out)["rows"]
    assert (row["head"]["from_ms"], row["head"]["to_ms"]) == (T0_MS + 3_000, T0_MS + 6_000)
    assert main(["report", "--tables", str(tables), "--period", "week", *both]) == 1
    error = b"kquota: --period: leave it out, or leave out --since and --until\n"
    assert capsysbinary.readouterr().err == error
