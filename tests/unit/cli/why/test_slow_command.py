"""`kquota slow` on a recorded broker: the client that was made to slow the others is the suspect, in every form."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.why.page import slow_text
from kquota_spark.model.interference.suspects import Suspect, Victim, Waited
from kquota_spark.model.interference.windows import Client
from kquota_spark.reports.slow.beside import SlowFor
from kquota_spark.reports.slow.cures import cure_command
from tests.support.logs.replayed_captures import run
from tests.support.places import DATA

FOLDER = DATA / "slow-broker"
LOG = FOLDER / "broker-1.log.gz"
MADE = json.loads((FOLDER / "run.json").read_text())
PERIOD = ("--since", str(MADE["since_ms"]), "--until", str(MADE["to_ms"]))


def _slow(*words: str) -> tuple[int, str, str]:
    return run(["slow", *words])


def _answer(*words: str) -> dict[str, Any]:
    code, out, _ = _slow(*words, "--output", "json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_client_that_was_made_to_slow_the_others_is_the_only_suspect_that_is_named() -> None:
    answer = _answer(str(LOG), *PERIOD)
    rows = answer["rows"]
    assert MADE["antagonist"] == "cedar"
    assert [(row["user"], row["client_id"]) for row in rows if row["is_named"]] == [("cedar", "cedar-app")]
    assert rows[0]["handler_share_percent"] > 90
    # The broker's own connection waited longer too, but not as much.
    waited = {row["user"]: row for row in rows if row["role"] == "victim"}
    assert set(waited) == {"alder", "birch", "elder", "maple", "ANONYMOUS"}
    waited.pop("ANONYMOUS")
    assert all(row["waited_slow_ms"] > 20 * row["waited_usual_ms"] for row in waited.values())
    [broker] = answer["brokers"]
    assert (broker["broker_id"], broker["slow_seconds"], broker["seconds"]) == (1, 6, 11)
    assert (answer["lines"], answer["unreadable"]) == (2_491, 0)


def test_the_time_before_it_began_has_neither_victims_nor_suspects() -> None:
    code, out, _ = _slow(str(LOG), "--until", str(MADE["since_ms"]))
    assert code == 0
    assert "slow     no client waited longer than usual" in out
    assert "suspect" not in out


def test_without_a_period_the_calm_quarter_of_the_log_is_usual() -> None:
    answer = _answer(str(LOG))
    assert [row["user"] for row in answer["rows"] if row["is_named"]] == ["cedar"]
    assert answer["brokers"][0]["waited_p95_before_ms"] is None


def test_the_last_line_has_the_time_that_is_usual() -> None:
    since_s = MADE["since_ms"] // 1_000 * 1_000
    *_, last = _slow(str(LOG), "--since", str(since_s), *PERIOD[2:])[1].splitlines()
    assert last == (
        "2,491 lines read; usual is the time from 2026-11-27 19:52:05 UTC to 2026-11-27 19:52:12 UTC"
    )
    *_, last = _slow(str(LOG))[1].splitlines()
    assert last == "2,491 lines read, none of them from before the period: the calm quarter of it is usual"


def test_a_page_has_the_suspect_its_cure_and_the_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = _slow(str(LOG), *PERIOD)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "broker 1"
    assert "suspect  cedar / cedar-app used 93 % of the handler time while others waited," in lines
    assert "kquota alter --name user=cedar --name client-id=cedar-app" in out
    assert [line.split(" ")[0] for line in lines if " s  " in line and "->" in line] == [
        "maple", "birch", "elder", "alder", "ANONYMOUS",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_spreadsheets_get_a_row_per_suspect_and_victim() -> None:
    code, out, _ = _slow(str(LOG), *PERIOD, "--output", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["role"] for row in rows] == ["suspect"] * 5 + ["victim"] * 5
    assert rows[0]["cure"].startswith("kquota alter --name user=cedar")


def test_names_are_escaped(tmp_path: Path) -> None:
    hostile = gzip.decompress(LOG.read_bytes()).replace(b"cedar-app", b"\\u001b[31m x")
    log = tmp_path / "broker-1.log"
    log.write_bytes(hostile)
    code, out, _ = _slow(str(log), *PERIOD)
    assert code == 0
    assert "\x1b" not in out
    assert "--name 'client-id=\\x1b[31m x'" in out or "\\x1b[31m x" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            (str(LOG), "--since", "2020-01-01", "--until", "2020-01-02"),
            "no request from 2019-12-31 23:50:00 UTC",
        ),
        ((str(LOG), "--since", "2027-01-01"), "the files have no request from 2027-01-01 00:00:00 UTC on"),
        ((str(FOLDER / "run.json"), "--broker", "1"), "no request, expected a request log"),
        ((str(FOLDER / "none.log"), "--broker", "1"), "cannot be read: No such file or directory"),
        ((str(FOLDER / "run.json"),), "no broker-<id> in the name"),
    ],
)
def test_without_requests_the_error_has_the_reason(words: tuple[str, ...], reason: str) -> None:
    code, out, err = _slow(*words)
    assert (code, out) == (1, "")
    # A busy machine prints progress before.
    assert reason in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("client", "command"),
    [
        (
            ("alice", "etl"),
            "kquota alter --name user=alice --name client-id=etl --add request_percentage=90 --dry-run",
        ),
        (("ANONYMOUS", "etl"), "kquota alter --name client-id=etl --add request_percentage=90 --dry-run"),
        (("alice", None), "kquota alter --name user=alice --add request_percentage=90 --dry-run"),
        ((None, None), ""),
        (("", ""), ""),
    ],
)
def test_the_cure_is_half_of_the_thread_time_for_the_client(client: Client, command: str) -> None:
    # 1.8 handlers were busy with it: 180 % of a thread.
    assert cure_command(Suspect(client, 0.9, 0.9, 0.0, 1.8, 1.0)) == command


def test_the_line_of_kquota_why_has_the_rise_and_the_suspect() -> None:
    waited = Waited(1.0, 2.0)
    victims = tuple(
        Victim((user, "app"), 5, 10, usual_ms, slow_ms, waited, waited, 100)
        for user, usual_ms, slow_ms in (("a", 0.2, 8.0), ("b", 0.4, 12.0), ("c", 0.6, 40.0))
    )
    suspect = Suspect(("hog", "etl"), 0.9, 0.9, 0.0, 1.8, 1.0)
    rose = "broker 2 was slow: the waiting time of 3 other clients rose from 0.4 ms to 12 ms"
    assert slow_text(SlowFor(2, victims, None)) == rose
    assert slow_text(SlowFor(2, victims, suspect)) == f"{rose}, while hog / etl kept it busy"
