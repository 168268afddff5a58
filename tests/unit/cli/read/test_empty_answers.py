"""An answer without rows says whether the named client was seen at all, and notes are only of shown columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.tables.table_rows import decision, second, usage, violation, write_table

REACHES = "the table decisions reaches 2026-11-21 05:40:09 UTC\n"
CAROL = "user carol was seen, last at 2026-11-21 05:40:05 UTC, and has"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of alice with an episode; carol was seen in second 5 and has none."""
    root = tmp_path_factory.mktemp("tables")
    write_table(root, "decisions", *(decision(at_s) for at_s in range(10)))
    write_table(root, "violations", violation(0))
    write_table(root, "usage", usage(0), usage(9), usage(5, user="carol", client_id="app"))
    return root


def shown(capsys: pytest.CaptureFixture[str], tables: Path, *words: str) -> str:
    assert main([*words, "--tables", str(tables)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--user", "nobody"), f"--user nobody; user nobody was never seen; {REACHES}"),
        (("--user", "carol"), f"--user carol; {CAROL} no violations; {REACHES}"),
        (("--user", "carol", "--open"), f"--user carol --open; {CAROL} none that match; {REACHES}"),
        (
            ("--user", "carol", "--client-id", "app"),
            f"--user carol --client app; {CAROL.replace('user carol', 'carol / app')} no violations; {REACHES}",
        ),
        (
            ("--user", "carol", "--since", second(5).isoformat()),
            f"--user carol --since 2026-11-21T05:40:05+00:00; {CAROL} no violations in that time; {REACHES}",
        ),
        (
            ("--user", "carol", "--until", second(5).isoformat()),
            f"--user carol --until 2026-11-21T05:40:05+00:00; user carol was not seen in that time; {REACHES}",
        ),
        # A name of alice's client id and carol's user: no client has both.
        (
            ("--user", "carol", "--client", "etl"),
            f"--user carol --client etl; carol / etl was never seen; {REACHES}",
        ),
    ],
)
def test_a_client_without_violations_was_seen_or_never_seen(
    options: tuple[str, ...], text: str, tables: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "300")
    assert shown(capsys, tables, "violations", *options) == f"no violations match {text}"


def test_without_usage_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path, "decisions", decision(9))
    write_table(tmp_path, "violations")
    out = shown(capsys, tmp_path, "violations", "--user", "nobody")
    assert " ".join(out.split()) == f"no violations match --user nobody; {REACHES}".strip()


@pytest.mark.parametrize(
    ("columns", "command", "note"),
    [
        (80, "decisions", "longest throttle: by replay / by brokers"),
        (200, "decisions", "longest throttle, total delay, throttled requests: by replay / by brokers"),
        (80, "violations", "total delay: by replay"),
        (200, "violations", "total delay, throttled requests, longest throttle: by replay"),
        (60, "usage", "peak: highest second; total delay: by brokers"),
        (200, "usage", "mean: over all of that time; peak: highest second; total delay: by brokers"),
    ],
)
def test_notes_are_of_the_columns_that_are_shown(
    columns: int, command: str, note: str, tables: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(capsys, tables, command).splitlines()
    (agreement,) = (number for number, line in enumerate(lines) if line.startswith("agreement"))
    notes = [
        line.removeprefix("rule: u/ user, c/ client id, * the default; ") for line in lines[agreement + 1 :]
    ]
    assert notes[0] == note
