"""`kquota timeline`: whose rows it takes, what it draws, and what it says happened."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.timeline_slots import slot_ms
from tests.support.tables.table_rows import (
    DAY,
    T0_MS,
    decision,
    request,
    second,
    usage,
    violation,
    write_table,
)

Capture = pytest.CaptureFixture[str]
AT = ("--since", "2026-11-21T05:40:00Z", "--until", "2026-11-21T05:40:40Z")
OVER = {"rate_per_s": 1.1e6, "quota_used_percent": 110.0, "total_throttle_ms": 100, "throttled_requests": 1}


def lines_of(capsys: Capture, *arguments: str) -> list[str]:
    assert main(["timeline", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def rows_of(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["timeline", *arguments, "--output", "json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def write_story(root: Path) -> None:
    """Ten seconds at half the limit, ten above it, nothing for ten, then the limit is half as high."""
    write_table(root, "usage", usage(0))
    write_table(
        root,
        "decisions",
        *(decision(s, rate_per_s=5e5, quota_used_percent=50.0) for s in range(10)),
        *(decision(s, **OVER) for s in range(10, 20)),
        *(decision(s, limit_per_s=5e5, rate_per_s=4e5, is_certain=s != 35) for s in range(30, 40)),
    )
    of_alice = {"cluster_id": "demo", "entity": "users/alice", "key": "producer_byte_rate"}
    write_table(
        root,
        "quota_changes",
        {**of_alice, "value": 5e5, "previous_value": 1e6, "changed_at": second(25), "source": "admin"},
        {**of_alice, "entity": "users/bob", "value": 1.0, "changed_at": second(26), "source": "admin"},
        {**of_alice, "key": "consumer_byte_rate", "value": 2.0, "changed_at": second(27), "source": "admin"},
    )
    step = {**of_alice, "event_date": DAY, "plan_id": "p-1", "step": 1, "actor": "root", "mode": "enforce"}
    values = {"value_before": 1e6, "value_after": 5e5, "reason": "over\x1b[2J budget", "policy": "override"}
    write_table(
        root,
        "enforcement_log",
        {**step, **values, "event": "planned", "at": second(24), "sequence": 1},
        {**step, **values, "event": "sending", "at": second(24), "sequence": 2},
        {**step, **values, "event": "applied", "at": second(24), "sequence": 3},
    )
    write_table(root, "violations", violation(10, 10, peak_quota_used_percent=110.0))
    gap = {"cluster_id": "demo", "broker_id": 1, "from_time": second(21), "to_time": second(23)}
    write_table(root, "log_gaps", {**gap, "reason": "the shipper lost lines"})


def test_rate_limit_throttles_gaps_and_events_stand_on_one_axis(tmp_path: Path, capsys: Capture) -> None:
    write_story(tmp_path)
    lines = lines_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl", *AT)
    # The top is 10/8 of the limit, so the limit is the upper edge of the eighth of ten rows: 125 kB/s a row.
    assert (
        lines[3:16]
        == [
            "  1.2 MB/s│",
            "          │          ▆▆▆▆▆▆▆▆▆▆",  # 1.1 MB/s is 8.8 rows
            "  1.0 MB/s│──────────━━━━━━━━━━",
            "          │          ██████████",
            "          │          ██████████",
            "          │          ██████████",
            "  500 kB/s│████████████████████          ──────────",
            "          │████████████████████          ██████████",  # 400 kB/s is 3.2 rows, the line is in the fourth
            "          │████████████████████          ██████████",
            "         0│████████████████████          ██████████",
            "           05:40:00      05:40:14      05:40:28",
            " throttled│          ▀▀▀▀▀▀▀▀▀▀",
            " uncertain│                                   ~",
        ]
    )
    assert lines[16:19] == [
        "    no log│                     ??",
        "    events│          A          B  C",
        "",
    ]
    # The plan, its application, the edit that the watcher saw and the new limit are one change.
    assert lines[19:23] == [
        "A 05:40:10  violation: over the limit, 10 s, at most 110 %, total delay 12.3 s of 42 requests",
        "B 05:40:21  gap: no log: the shipper lost lines",
        'C 05:40:24  override by root 1.0 MB/s -> 500 kB/s, users/alice, plan p-1 "over\\x1b[2J budget", in',
        "            force 05:40:30, seen by the watcher 05:40:25",
    ]
    assert lines[23] == "10 of 30 requests throttled, total delay 1.00 s"
    assert max(map(len, lines)) <= 100


def test_a_client_that_waits_out_a_throttle_is_muted_and_not_silent(tmp_path: Path, capsys: Capture) -> None:
    # The quota is cut: in second 3 the broker logs a throttle of 12,372 ms, of which the replay knows nothing. Then
    # no request comes before second 20. 3 s + 12.372 s: the seconds 4 to 15 are muted, 16 to 19 without traffic.
    cut = {
        "observed_throttle_ms": 12_372,
        "observed_total_throttle_ms": 12_372,
        "observed_throttled_requests": 1,
    }
    told = {"observed_total_throttle_ms": 0}
    write_table(tmp_path, "usage", usage(0))
    write_table(
        tmp_path,
        "decisions",
        *(decision(s, **told) for s in (0, 1, 2)),
        decision(3, is_certain=False, **cut),
        *(decision(s, **told) for s in range(20, 40)),
    )
    lines = lines_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl", *AT)
    assert [line for line in lines if line[:10].strip() in ("throttled", "muted", "uncertain")] == [
        " throttled│   ▀",
        "     muted│    ░░░░░░░░░░░░",
        " uncertain│   ~",
    ]
    assert "1 of 24 requests throttled, total delay 12.4 s" in lines
    assert "muted: no requests, because the last throttle still ran" in lines
    rows = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl", *AT)["rows"]
    assert [number for number, row in enumerate(rows) if row["is_muted"]] == list(range(4, 16))


def test_a_terminal_without_blocks_gets_ascii(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_story(tmp_path)
    monkeypatch.setattr("kquota_spark.cli.text.page._can_encode", lambda text, _: text.isascii())
    lines = lines_of(capsys, "--tables", str(tmp_path), "--user", "alice", *AT)
    assert all(line.isascii() for line in lines)
    assert lines[5] == "  1.0 MB/s|----------=========="
    assert lines[14] == " throttled|          tttttttttt"


def test_programs_get_slots_and_events(tmp_path: Path, capsys: Capture) -> None:
    write_story(tmp_path)
    found = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl", *AT)
    assert (found["broker_id"], found["quota_type"], found["slot_ms"]) == (1, "produce", 1_000)
    slots = [row for row in found["rows"] if row["row"] == "slot"]
    events = [row for row in found["rows"] if row["row"] == "event"]
    assert (len(slots), [row["letter"] for row in events]) == (40, list("ABC"))
    assert [slots[n]["rate_per_s"] for n in (9, 10, 20, 30)] == [5e5, 1.1e6, None, 4e5]
    assert (slots[10]["time"], slots[10]["delay_ms"]) == ("2026-11-21T05:40:10Z", 100)
    last = events[-1]
    assert {name: last[name] for name in ("kind", "status", "entity", "before", "after", "by")} == {
        "kind": "override", "status": "applied", "entity": "users/alice", "before": 1e6, "after": 5e5, "by": "root",
    }  # fmt: skip
    assert [last[name] for name in ("time", "planned_at", "approved_at", "seen_at", "in_force_at")] == [
        "2026-11-21T05:40:24Z", "2026-11-21T05:40:24Z", None, "2026-11-21T05:40:25Z", "2026-11-21T05:40:30Z",
    ]  # fmt: skip


def test_who_asked_a_broker_for_the_edit_is_named(tmp_path: Path, capsys: Capture) -> None:
    write_table(tmp_path, "usage")
    write_table(tmp_path, "decisions", decision(0), decision(20))
    change = {"cluster_id": "demo", "entity": "users/alice", "key": "producer_byte_rate", "source": "admin"}
    # The poll before 05:40:08 did not have it yet, that of 05:40:10 had.
    polled = {"changed_at": second(8), "changed_before": second(10)}
    write_table(tmp_path, "quota_changes", {**change, **polled, "value": 1e6, "previous_value": None})
    asked = json.dumps([["users/alice", "producer_byte_rate", 1e6]])
    other = json.dumps([["users/alice", "producer_byte_rate", 2e6]])
    write_table(
        tmp_path,
        "requests",
        request(1, T0_MS + 9_000, api_key=49, user="admin", client_id="cli", altered_quotas=asked),
        request(2, T0_MS + 9_500, api_key=49, user="eve", client_id="cli", altered_quotas=other),
    )
    found = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice")
    (event,) = (row for row in found["rows"] if row["row"] == "event")
    assert (event["by"], event["before"], event["after"]) == ("user admin (cli)", None, 1e6)
    assert (event["what"], event["time"]) == (
        "users/alice producer_byte_rate, seen by a poll of admin",
        "2026-11-21T05:40:10Z",
    )


def test_a_client_that_moves_to_a_bucket_of_its_own_is_followed(tmp_path: Path, capsys: Capture) -> None:
    own = {"bucket_client_id": "etl", "rule": "users/alice/clients/etl", "level": 1, "limit_per_s": 3e5}
    shared = {"users": ["alice"], "client_ids": ["other"]}
    write_table(tmp_path, "usage", usage(0))
    write_table(
        tmp_path,
        "decisions",
        decision(0),
        decision(1),
        decision(2, **own),
        decision(2, **shared),
        decision(3, **own),
    )
    found = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl")
    slots = [row["limit_per_s"] for row in found["rows"] if row["row"] == "slot"]
    assert slots == [1e6, 1e6, 3e5, 3e5]
    (event,) = (row for row in found["rows"] if row["row"] == "event")
    assert event["what"] == "in force by users/alice/clients/etl, in a new bucket: alice / etl"


def test_the_broker_with_the_most_throttling_is_shown_and_the_others_are_named(
    tmp_path: Path, capsys: Capture
) -> None:
    write_table(tmp_path, "usage", usage(0, broker_id=3, amount=9_000_000))
    write_table(
        tmp_path, "decisions", decision(0), decision(0, broker_id=2, **OVER), decision(0, quota_type="fetch")
    )
    asked = ("--tables", str(tmp_path), "--user", "alice", "--client-id", "etl")
    lines = lines_of(capsys, *asked)
    assert lines[0] == "  alice / etl: produce on broker 2, bucket user alice"
    said = "also seen: fetch on broker 1 (total delay 0 ms), produce on broker 1 (total delay 0 ms), produce"
    assert any(line.startswith(said) for line in lines)
    assert lines_of(capsys, *asked, "--broker", "1", "--type", "fetch")[0].startswith(
        "  alice / etl: fetch on broker 1,"
    )
    assert "was never seen of type request" in lines_of(capsys, *asked, "--type", "request")[0]


def test_without_a_quota_what_it_sent_is_shown(tmp_path: Path, capsys: Capture) -> None:
    write_table(tmp_path, "decisions")
    write_table(
        tmp_path, "usage", usage(0, amount=8_000), usage(1, amount=4_000), usage(1, amount=4_000, tile=1)
    )
    lines = lines_of(capsys, "--tables", str(tmp_path), "--user", "alice", "--client-id", "etl")
    assert lines[0] == "  alice / etl: produce on broker 1, no bucket"
    assert lines[2] == "  no quota governed it: no limit, and the rates are means of what it sent, from usage"
    assert lines[4] == "  8.0 kB/s│░░"
    assert main(["timeline", "--tables", str(tmp_path), "--user", "mallory"]) == 0
    assert capsys.readouterr().out.startswith("user mallory was never seen from 2026-11-21 04:40:02 UTC to")


def test_a_period_without_an_inside_or_nobody_named_is_refused(tmp_path: Path, capsys: Capture) -> None:
    write_table(tmp_path, "decisions", decision(0))
    write_table(tmp_path, "usage")
    with pytest.raises(SystemExit) as ended:
        main(["timeline", "--tables", str(tmp_path)])
    assert ended.value.code == 2
    assert "add --user NAME, --client-id ID, or both" in capsys.readouterr().err
    assert (
        main(["timeline", "--tables", str(tmp_path), "--user", "alice", "--since", "2026-11-22T00:00:00Z"])
        == 1
    )
    assert "the tables reach 2026-11-21 05:40:01 UTC" in capsys.readouterr().err


def test_the_slot_is_the_shortest_of_which_the_axis_has_room() -> None:
    hour = round(timedelta(hours=1).total_seconds() * 1_000)
    lengths = {88_000: 1_000, 88_001: 2_000, hour: 60_000, 24 * hour: 1_800_000, 80 * hour: hour}
    assert {length: slot_ms(Period(0, length), 88) for length in lengths} == lengths


def test_a_slot_of_many_seconds_holds_the_highest_rate_and_all_throttles(
    tmp_path: Path, capsys: Capture
) -> None:
    write_table(tmp_path, "usage")
    write_table(
        tmp_path,
        "decisions",
        *(decision(s, rate_per_s=1e5 + s, total_throttle_ms=1, throttled_requests=1) for s in range(100)),
    )
    found = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice")
    first = found["rows"][0]
    assert (found["slot_ms"], first["rate_per_s"], first["delay_ms"], first["seconds"]) == (
        2_000,
        1e5 + 1,
        2,
        2,
    )


def test_request_time_without_a_quota_is_drawn_in_percent_of_a_thread(
    tmp_path: Path, capsys: Capture
) -> None:
    write_table(tmp_path, "decisions")
    write_table(tmp_path, "usage", *(usage(s, quota_type="request", amount=250_000) for s in range(40)))
    found = rows_of(capsys, "--tables", str(tmp_path), "--user", "alice", *AT)
    # 250 ms of a thread in a second
    assert {row["rate_per_s"] for row in found["rows"]} == {25.0}


def test_of_several_clusters_it_is_the_client_of_the_settings_one(tmp_path: Path, capsys: Capture) -> None:
    write_table(tmp_path, "usage", *(usage(s, cluster_id=name) for s in range(40) for name in ("a", "b")))
    other = {"cluster_id": "b", "limit_per_s": 9e6, "rate_per_s": 8e6, "total_throttle_ms": 500}
    write_table(tmp_path, "decisions", *(decision(s, cluster_id="a") for s in range(40)),
                *(decision(s, **other) for s in range(40)))  # fmt: skip
    config = tmp_path / "kquota.yaml"
    config.write_text(f"cluster_id: a\ntables: {tmp_path}\n", encoding="utf-8")
    found = rows_of(capsys, "--config", str(config), "--user", "alice", "--client-id", "etl", *AT)
    assert {row["limit_per_s"] for row in found["rows"] if row["row"] == "slot"} == {1e6}
    assert [bucket["cluster_id"] for bucket in found["buckets"]] == ["a"]
    assert main(["timeline", "--tables", str(tmp_path), "--user", "alice", *AT]) == 1
    assert "hold a, b: set cluster_id to one of them" in capsys.readouterr().err
