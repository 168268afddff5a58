"""One name per figure: delays and throttled requests in JSON and CSV of every reading command, and their values."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.command_groups import GROUPS
from kquota_spark.cli.main import main
from kquota_spark.schema.figures import FIGURES, figure_of
from kquota_spark.schema.tables import TABLES

SHAPES = {
    "status": (), "top": (), "throttled": (), "why": (), "explain": ("--user", "alice", "--client-id", "etl"),
    "timeline": ("--user", "alice", "--client-id", "etl"),
    "whatif": ("--add", "user=alice,client-id=etl,producer_byte_rate=150000", "--limit", "0"),
    "report": ("--to", "-", "--format", "json", "--since", "2026-11-21", "--until", "2026-11-22"),
    "violations": (), "decisions": (), "usage": (), "connections": (), "findings": ("--evidence",),
    "evidence": ("--user", "alice", "--client-id", "etl"),
    "agreement": ("--by", "bucket"), "budget": ("--by", "bucket"), "doctor": (), "try": (), "impact": (),
    "rightsize": (),
    "resolve": ("--user", "alice", "--client-id", "etl"),
}  # fmt: skip
"""The words of each command for JSON over the tables of `kquota try`; `replay` has its own below."""
REPLAY = ("replay", "--sample", "--by", "bucket", "--compare-window", "30x1", "--show", "wrong")
NO_FIGURES = {
    # Counts and differences of verdicts.
    "judged_throttled", "throttled_by_broker", "throttled_by_model", "throttles_compared", "throttle_within_1_ms",
    "throttle_within_10_ms", "throttle_error_max_ms", "throttle_error_ms",
    "throttle_errors_ms",
    # Lists and objects, and numbers of buckets.
    "throttled", "throttled_buckets", "throttled_left_out", "throttle_pairs", "throttle_spreads", "near_unthrottled",
    "delay", "is_muted",
}  # fmt: skip
"""Names about throttles that are no delay and no count of throttled requests."""
# The log's lines of PRODUCE of alice / etl: the sum of throttleTimeMs, the number above 0, the largest.
ALICE_DELAY_MS, ALICE_REQUESTS, ALICE_LONGEST_MS = 20_811, 146, 1_076
ALICE_TIME_S = 22
"""Seconds of the clock from the second of a line until its throttleTimeMs is over, each once."""
REPLAY_DELAY_MS, REPLAY_REQUESTS = 21_200, 146
_ABOUT_THROTTLES = re.compile("throttl|delay|mute")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `kquota try`."""
    folder = tmp_path_factory.mktemp("tried") / "sample"
    assert printed("try", "--folder", str(folder))
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, Any]:
    """The JSON of each reading command."""
    config = ("--config", str(folder / "kquota.yaml"))
    found = {
        name: json.loads(printed(name, *words, *(() if name == "report" else ("--output", "json")), *config))
        for name, words in SHAPES.items() if name != "try"
    }  # fmt: skip
    found["try"] = json.loads(printed("try", "--folder", str(folder), "--output", "json"))
    found["tree"] = json.loads(printed("tree", "--output", "json", *config))
    found["usage --by-second"] = json.loads(printed("usage", "--by-second", "--output", "json", *config))
    found["replay"] = json.loads(printed(*REPLAY, "--output", "json"))
    found["replay --by request"] = json.loads(
        printed("replay", "--sample", "--by", "request", "--output", "json")
    )
    return found


def printed(*words: str) -> str:
    """What a command prints to standard output; doctor and status may find something."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
        out.flush()
    assert code in (0, 2), err.getvalue()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def names_in(value: Any) -> Iterator[str]:
    """All names of a JSON value."""
    for part in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from names_in(part)
    if isinstance(value, dict):
        yield from value


def test_all_reading_commands_are_asked(answers: dict[str, Any]) -> None:
    # The tables of `kquota try` have no shadow: test_shadow_command.py asks for its names. `slow` reads no tables.
    assert {command.name for command in GROUPS["answers"]} == {*SHAPES, "replay", "shadow", "slow"}


def test_each_name_of_a_delay_or_of_throttled_requests_is_a_declared_figure(answers: dict[str, Any]) -> None:
    other = {
        (command, name)
        for command, answer in answers.items()
        for name in names_in(answer)
        if _ABOUT_THROTTLES.search(name) and name not in FIGURES and name not in NO_FIGURES
    }
    assert other == set()
    # The words above are no wider than the answers.
    said = {name for answer in answers.values() for name in names_in(answer)}
    assert {*FIGURES} - said == set()


def rows_of(answer: Any, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in answer["rows"] if all(row[name] == value for name, value in wanted.items())]


def test_the_delay_of_a_bucket_is_one_value_in_all_commands(answers: dict[str, Any]) -> None:
    bucket = {"quota_type": "produce", "bucket_user": "alice", "bucket_client_id": "etl"}
    client = {"user": "alice", "client_id": "etl"}
    of_report = [one for one in answers["report"]["rows"][0]["throttled"]
                 if one["bucket"] == {"quota_type": "produce", **client, "tags": ""}]  # fmt: skip
    found = {
        "throttled": rows_of(answers["throttled"], **bucket),
        "violations": rows_of(answers["violations"], **bucket),
        "decisions": rows_of(answers["decisions"], **bucket),
        "usage": rows_of(answers["usage"], quota_type="produce", **client),
        "usage --by-second": rows_of(answers["usage --by-second"], quota_type="produce", **client),
        "timeline": rows_of(answers["timeline"], row="slot"),
        "tree": rows_of(answers["tree"], entity="users/alice/clients/etl", quota_type="produce"),
        "whatif": rows_of(answers["whatif"], loop="open", **bucket),
        "connections": rows_of(answers["connections"], **client),
        "replay": [row for row in answers["replay"]["buckets"]
                   if all(row[name] == value for name, value in bucket.items())],
        "report": of_report,
        "explain": [answers["explain"]["delay"]],
    }  # fmt: skip
    delays = {name: sum(row["delay_ms"] or 0 for row in rows) for name, rows in found.items()}
    assert delays == dict.fromkeys(found, ALICE_DELAY_MS)
    counted = {
        name: sum(row["throttled_requests"] or 0 for row in rows)
        for name, rows in found.items()
        if name not in ("usage", "usage --by-second", "tree")
    }
    assert counted == dict.fromkeys(counted, ALICE_REQUESTS)
    timed = {name: found[name][0]["time_throttled_s"] for name in ("throttled", "tree", "whatif", "report")}
    assert timed == dict.fromkeys(timed, ALICE_TIME_S)
    longest = {
        name: max(row["longest_throttle_ms"] or 0 for row in found[name])
        for name in ("violations", "decisions")
    }
    assert longest == dict.fromkeys(longest, ALICE_LONGEST_MS)


def test_the_replays_own_figures_are_one_value_too(answers: dict[str, Any]) -> None:
    bucket = {"quota_type": "produce", "bucket_user": "alice", "bucket_client_id": "etl"}
    rows = {
        "decisions": rows_of(answers["decisions"], **bucket),
        "whatif": rows_of(answers["whatif"], loop="open", **bucket),
        "replay": [row for row in answers["replay"]["buckets"]
                   if all(row[name] == value for name, value in bucket.items())],
    }  # fmt: skip
    for figure, value in (
        ("delay_by_replay_ms", REPLAY_DELAY_MS),
        ("throttled_requests_by_replay", REPLAY_REQUESTS),
    ):
        found = {name: sum(row[figure] for row in of_command) for name, of_command in rows.items()}
        assert found == dict.fromkeys(rows, value)


def test_csv_has_the_names_of_json(folder: Path) -> None:
    config = ("--config", str(folder / "kquota.yaml"))
    for command in ("throttled", "violations", "decisions", "usage", "connections", "tree"):
        header = next(csv.reader(io.StringIO(printed(command, "--output", "csv", *config))))
        first = json.loads(printed(command, "--output", "json", *config))["rows"][0]
        assert header == list(first)


def test_two_columns_of_a_table_never_get_one_name() -> None:
    for table in TABLES:
        renamed = [figure_of(table, name) for name in table.names]
        assert len({*renamed}) == len(renamed), table.name
