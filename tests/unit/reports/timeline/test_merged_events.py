"""One event per change of a quota: its plan, its application, the edit that was seen, and the limit in force."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.cli.text.timeline_chart import letter_of, letters
from kquota_spark.reports.timeline.events import Event, merged
from tests.support.tables.table_rows import DAY, decision, second, usage, violation, write_table

KEY = "producer_byte_rate"
STEP = Event(100_000, "override", "plan p-1", 200.0, 250.0, "root", entity="users/alice", status="applied")
EDIT = Event(101_000, "config", "users/alice", 200.0, 250.0, entity="users/alice")
LIMIT = Event(
    103_000,
    "limit",
    "in force by users/alice",
    200.0,
    250.0,
    entity="users/alice",
    entity_before="users/alice",
)


def test_a_step_its_echo_and_its_limit_are_one_event() -> None:
    assert merged([STEP], [EDIT], [LIMIT], KEY) == [replace(STEP, seen_at_ms=101_000, in_force_at_ms=103_000)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(EDIT, time_ms=160_001), id="more than a minute later"),
        pytest.param(replace(EDIT, after=300.0), id="another value"),
        pytest.param(replace(EDIT, entity="users/bob"), id="another entity"),
    ],
)
def test_another_edit_stays_an_event(other: Event) -> None:
    assert merged([STEP], [other], [], KEY) == [STEP, other]
    assert merged([replace(STEP, status="refused")], [EDIT], [], KEY) == [
        replace(STEP, status="refused"),
        EDIT,
    ]


def test_one_step_has_one_echo_and_an_edit_has_the_nearest_step() -> None:
    later = replace(STEP, time_ms=140_000)
    assert merged([STEP, later], [replace(EDIT, time_ms=139_000)], [], KEY) == [
        STEP, replace(later, seen_at_ms=139_000)
    ]  # fmt: skip
    assert merged([STEP], [EDIT, replace(EDIT, time_ms=102_000)], [], KEY) == [
        replace(STEP, seen_at_ms=101_000), replace(EDIT, time_ms=102_000)
    ]  # fmt: skip


def test_a_limit_belongs_to_the_newest_change_of_its_rule_however_late_the_client_comes() -> None:
    hours_later = replace(LIMIT, time_ms=9_000_000)
    assert merged([], [EDIT], [hours_later], KEY) == [replace(EDIT, in_force_at_ms=9_000_000)]
    # A newer edit of the same entity set something else: the limit is not explained.
    newer = replace(EDIT, time_ms=200_000, after=400.0)
    assert merged([], [EDIT, newer], [hours_later], KEY) == [EDIT, newer, hours_later]
    # A poll sees the edit only after the client has met it.
    polled = replace(EDIT, time_ms=130_000)
    assert merged([], [polled], [LIMIT], KEY) == [replace(polled, in_force_at_ms=103_000)]
    # A step of enforcement is never later than its effect.
    late = replace(STEP, time_ms=130_000)
    assert merged([late], [], [LIMIT], KEY) == [LIMIT, late]


def test_a_removed_quota_and_a_new_bucket_are_merged_too() -> None:
    removed = replace(EDIT, after=None)
    fallen = replace(
        LIMIT, what="in force by clients/etl, in a new bucket: etl", after=80.0, entity="clients/etl"
    )
    assert merged([], [removed], [fallen], KEY) == [
        replace(removed, what="users/alice, in a new bucket: etl", in_force_at_ms=103_000)
    ]


def _step(sequence: int, event: str, at_s: int, **changed: Any) -> dict[str, Any]:
    return {"cluster_id": "demo", "entity": "users/alice", "key": KEY, "event_date": DAY, "plan_id": "p-1", "step": 1,
            "actor": "enforcer", "mode": "approve", "value_before": 1e6, "value_after": 5e5, "reason": "over budget",
            "policy": "penalty", "event": event, "at": second(at_s), "sequence": sequence, **changed}  # fmt: skip


def events(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["timeline", "--tables", str(root), "--user", "alice", "--output", "json"]) == 0
    return [row for row in json.loads(capsys.readouterr().out)["rows"] if row["row"] == "event"]


def test_a_dozen_rows_of_a_penalty_are_its_beginning_and_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "usage", usage(0))
    low = {"limit_per_s": 5e5}
    write_table(tmp_path, "decisions", decision(0), decision(22, **low), decision(30, **low), decision(41))
    log = [_step(1, "planned", 2), _step(2, "approved", 10, actor="dave"), _step(3, "sending", 20),
           _step(4, "applied", 20), _step(5, "restoring", 40), _step(6, "restored", 40)]  # fmt: skip
    write_table(tmp_path, "enforcement_log", *log)
    edit = {"cluster_id": "demo", "entity": "users/alice", "key": KEY, "source": "zookeeper"}
    write_table(
        tmp_path,
        "quota_changes",
        edit | {"value": 5e5, "previous_value": 1e6, "changed_at": second(20)},
        edit | {"value": 1e6, "previous_value": 5e5, "changed_at": second(40)},
    )
    found = events(tmp_path, capsys)
    assert [
        (row["letter"], row["status"], row["before"], row["after"], row["in_force_at"]) for row in found
    ] == [
        ("A", "applied", 1e6, 5e5, "2026-11-21T05:40:22Z"),
        ("B", "restored", 5e5, 1e6, "2026-11-21T05:40:41Z"),
    ]
    assert (found[0]["planned_at"], found[0]["approved_at"]) == (
        "2026-11-21T05:40:02Z",
        "2026-11-21T05:40:10Z",
    )
    assert main(["timeline", "--tables", str(tmp_path), "--user", "alice"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        'A 05:40:20 enforcement by enforcer 1.0 MB/s -> 500 kB/s, policy penalty, users/alice, plan p-1 "over budget", '
        "planned 05:40:02, approved 05:40:10, in force 05:40:22 B 05:40:40 enforcement restored by enforcer 500 kB/s "
        "-> 1.0 MB/s,"
    ) in printed


def test_in_one_second_a_change_comes_before_the_violation_that_it_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", decision(0), decision(30))
    write_table(tmp_path, "violations", violation(20, 5))
    at = second(20) + timedelta(milliseconds=700)
    edit = {"cluster_id": "demo", "entity": "users/alice", "key": KEY, "source": "zookeeper"}
    write_table(tmp_path, "quota_changes", edit | {"value": 5e5, "previous_value": 1e6, "changed_at": at})
    assert [row["kind"] for row in events(tmp_path, capsys)] == ["config", "violation"]


def test_a_step_that_was_refused_again_and_again_is_one_event_with_the_last_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", decision(0), decision(30))
    refused = [_step(n, "refused", n, guard="hold", detail=f"try {n}") for n in (2, 3, 4)]
    write_table(tmp_path, "enforcement_log", _step(1, "planned", 1), *refused)
    [event] = events(tmp_path, capsys)
    assert (event["status"], event["what"]) == (
        "refused", 'policy penalty, users/alice, plan p-1 "over budget": hold: try 4'
    )  # fmt: skip


def test_labels_beyond_z_have_two_letters_and_stand_apart() -> None:
    assert [letter_of(number) for number in (0, 25, 26, 51, 52, 701, 702)] == [
        "A", "Z", "AA", "AZ", "BA", "ZZ", "AAA",
    ]  # fmt: skip
    placed = [("Z", 0), ("AA", 1_000), ("AB", 1_000), ("AC", 5_000), ("AD", 9_000), ("AE", 1_000)]
    lettered = [(label, Event(time_ms, "gap", "")) for label, time_ms in placed]
    # AA would touch Z, AD begins one column earlier, and AE finds AB in the last row.
    assert [*letters(lettered[:5], 0, 1_000, 10, "|")] == [
        "    events|Z    AC AD",
        "          | AA",
        "          | AB",
    ]
    assert [*letters(lettered, 0, 1_000, 10, "|")][2] == "          | +"
