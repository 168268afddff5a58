"""`kquota throttled`: one row per bucket, most total delay first, with the figures of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.tables.table_rows import decision, second, usage, violation, write_table


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Ten seconds: alice waits 2 s in second 3 and 1 s in second 4, bob 4 s in second 8; carol is not throttled."""
    harm = {(3, "alice"): (2_000, 2), (4, "alice"): (1_000, 1), (8, "bob"): (4_000, 1)}
    rows = []
    for at_s in range(10):
        for user in ("alice", "bob", "carol"):
            delay_ms, requests = harm.get((at_s, user), (0, 0))
            rows.append(
                decision(at_s, bucket_user=user, bucket_client_id="", users=[user], client_ids=["etl"],
                         limit_per_s=1_000.0, observed_total_throttle_ms=delay_ms,
                         observed_throttle_ms=min(delay_ms, 2_000),
                         observed_throttled_requests=requests, throttled_requests=requests, total_throttle_ms=delay_ms)
            )  # fmt: skip
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", *(usage(at_s) for at_s in range(10)))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], tables: Path, *options: str) -> tuple[int, str, str]:
    code = main(["throttled", "--tables", str(tables), *options])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_most_delay_comes_first_and_the_sum_is_below(
    tables: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, tables, "--output", "json")
    rows = json.loads(out)["rows"]
    figures = ("bucket_user", "delay_ms", "throttled_requests", "time_throttled_s", "time_throttled_percent")
    # alice: 2 s from second 3 on, 1 s from second 4 on: seconds 3 and 4. bob: 2 s, seconds 8 and 9.
    assert [tuple(row[name] for name in figures) for row in rows] == [
        ("bob", 4_000, 1, 2, 20.0),
        ("alice", 3_000, 3, 2, 20.0),
    ]
    _, out, _ = run(capsys, tables)
    assert (
        "2 buckets; total delay 7.00 s from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:10 UTC"
        in " ".join(out.split())
    )


def test_a_limit_on_rows_keeps_the_sum_of_all(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, tables, "--limit", "1")
    assert "user bob" in out and "user alice" not in out
    assert "2 buckets, 1 shown: --limit 0 shows all; total delay 7.00 s" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "users"),
    [
        (("--until", second(8).isoformat()), ["alice"]),
        (("--since", second(5).isoformat()), ["bob"]),
        (("--type", "fetch"), []),
    ],
)
def test_time_and_type_choose(
    options: tuple[str, ...], users: list[str], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, tables, *options, "--output", "json")
    assert [row["bucket_user"] for row in json.loads(out)["rows"]] == users


def test_nobody_throttled_and_an_empty_period_are_one_line(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, tables, "--until", second(2).isoformat())
    assert out.startswith("nobody was throttled: 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:02 UTC\n")
    code, _, err = run(capsys, tables, "--since", second(9).isoformat(), "--until", second(8).isoformat())
    assert (code, err) == (
        1, "kquota: --since 2026-11-21 05:40:09 UTC is not before --until 2026-11-21 05:40:08 UTC\n",
    )  # fmt: skip


def test_since_after_the_end_of_the_tables_names_that_end(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "kquota: --since 2026-11-21 05:40:10 UTC: nothing is that new, the tables reach 2026-11-21 05:40:10 UTC\n"
    assert run(capsys, tables, "--since", second(10).isoformat()) == (1, "", line)


@pytest.mark.parametrize(
    ("mode", "command"),
    [
        (("--episodes",), "violations"),
        (("--episodes", "--open", "--user", "bob"), "violations"),
        (("--seconds", "--throttled", "--client-id", "etl"), "decisions"),
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_mode_answers_as_the_command_of_its_own(
    mode: tuple[str, ...], command: str, form: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tables, "violations", violation(3, 2), violation(8, None, bucket_user="bob", users=["bob"]))
    rest = ("--tables", str(tables), "--output", form, "--limit", "1")
    assert main([command, *mode[1:], *rest]) == 0
    of_command = capsys.readouterr().out
    assert main(["throttled", *mode, *rest]) == 0
    assert capsys.readouterr().out == of_command
    assert "bob" in of_command


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--open",), "--open works only with --episodes"),
        (("--seconds", "--open"), "--open works only with --episodes"),
        (("--user", "bob"), "--user works only with --episodes or --seconds"),
        (("--client", ""), "--client-id works only with --episodes or --seconds"),
        (("--broker", "0"), "--broker works only with --episodes or --seconds"),
    ],
)
def test_an_option_of_a_mode_is_refused_without_it(
    options: tuple[str, ...], line: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, tables, *options) == (1, "", f"kquota: throttled: {line}\n")


def test_two_modes_are_a_usage_error(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["throttled", "--tables", str(tables), "--episodes", "--seconds"])
    assert ended.value.code == 2
    assert "--seconds: not allowed with argument --episodes" in capsys.readouterr().err
