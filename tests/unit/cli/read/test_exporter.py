"""`kquota exporter` over literal tables: what a scrape says, and what it says no more."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kquota_spark.errors import UserError
from tests.support.programs.command_output import run
from tests.support.programs.exposition_format import parsed_exposition
from tests.support.reports.exported import Exporter
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    heartbeat,
    request,
    source,
    usage,
    violation,
    write_table,
)

THROTTLED = {
    "rate_per_s": 1_500_000.0, "quota_used_percent": 150.0, "amount": 2_000, "requests": 3,
    "throttle_ms": 400, "throttled_requests": 2, "total_throttle_ms": 700,
}  # fmt: skip
ALICE = ("produce", "alice")


def test_a_scrape_has_limit_rate_and_used_part_of_each_bucket(tmp_path: Path) -> None:
    found = Exporter(tmp_path).judged(
        30,
        decision(0),
        decision(1, broker_id=2, quota_type="fetch", bucket_user="", bucket_client_id="etl", level=8,
                 rule="clients/<default>", limit_per_s=2e6, rate_per_s=1e6, quota_used_percent=50.0),
    )  # fmt: skip
    etl = ("2", "fetch", "etl")
    assert found["bucket_limit_bytes_per_second"] == {
        (*ALICE, "users/alice", "3"): 1_000_000.0,
        (*etl, "clients/<default>", "8"): 2_000_000.0,
    }
    assert found["bucket_rate_bytes_per_second"] == {ALICE: 250_000.0, etl: 1_000_000.0}
    assert found["bucket_quota_used_ratio"] == {ALICE: 0.25, etl: 0.5}
    assert found["newest_decision_timestamp_seconds"] == {(): T0_MS / 1_000, ("2",): T0_MS / 1_000 + 1}


def test_units_are_base_units(tmp_path: Path) -> None:
    found = Exporter(tmp_path).judged(
        0,
        decision(0, quota_type="request", limit_per_s=200.0, rate_per_s=50.0, quota_used_percent=25.0),
        decision(0, broker_id=-1, quota_type="controller_mutation", limit_per_s=5.0, rate_per_s=2.5),
        decision(0, quota_type="connection", limit_per_s=10.0, rate_per_s=1.0, source="jmx"),
    )
    of_request = ("request", "alice", "users/alice", "3")
    assert found["bucket_limit_threads"] == {of_request: 2.0}  # 200 % of a handler thread
    assert found["bucket_rate_threads"] == {of_request[:2]: 0.5}
    assert list(found["bucket_limit_mutations_per_second"].values()) == [5.0]
    assert list(found["bucket_rate_connections_per_second"].values()) == [1.0]


def test_counters_begin_at_0_and_count_what_is_committed_from_then_on(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    before = exporter.judged(10, decision(0, **THROTTLED))
    names = ("bytes", "requests", "throttled_requests", "throttle_seconds", "time_in_throttle_seconds")
    assert [before[f"bucket_{name}_total"][ALICE] for name in names] == [0, 0, 0, 0, 0]
    exporter.judged(25, decision(1, **THROTTLED), decision(2))
    found = exporter.judged(40, decision(3, **THROTTLED, late=1))
    # 2,000 + 1,000 + 2,000 bytes; 3 + 1 + 3 requests and one that came late; two throttled seconds.
    assert [found[f"bucket_{name}_total"][ALICE] for name in names] == [5_000, 8, 4, 1.4, 2]
    assert exporter.judged(55)["bucket_bytes_total"] == {ALICE: 5_000}  # nothing new


def test_a_throttle_that_is_long_counts_until_its_end_and_once(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    long_one = {**THROTTLED, "throttle_ms": 4_000}
    name = "bucket_time_in_throttle_seconds_total"
    # 1 to 5, then 3 to 7: from 1 to 7. The second look carries on: 6 to 10 adds 7 to 10.
    assert exporter.judged(5, decision(1, **long_one), decision(3, **long_one))[name] == {ALICE: 6.0}
    assert exporter.judged(9, decision(6, **long_one))[name] == {ALICE: 9.0}
    assert exporter.judged(30, decision(20, **THROTTLED))[name] == {ALICE: 10.0}


def test_a_sample_of_jmx_stands_for_the_time_since_the_one_before(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    sample = {"source": "jmx", "amount": None, "requests": None, "throttled_requests": None,
              "total_throttle_ms": None, "throttle_ms": None, "observed_throttle_ms": 30}  # fmt: skip
    exporter.judged(0, decision(0, **sample))
    found = exporter.judged(12, decision(5, **sample), decision(10, **{**sample, "observed_throttle_ms": 0}))
    # The sample at 10 s says that nothing was throttled any more.
    assert found["bucket_time_in_throttle_seconds_total"] == {ALICE: 5.0}
    assert "decisions_total" not in found  # those of the log
    found = exporter.judged(20, decision(15, **sample))
    assert found["bucket_time_in_throttle_seconds_total"] == {ALICE: 10.0}


def test_where_the_log_tells_samples_of_jmx_are_left_out(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    found = exporter.judged(
        9,
        decision(5, source="jmx", rate_per_s=9e9),
        decision(5, bucket_user="bob", source="jmx", broker_id=2),
    )
    assert found["bucket_rate_bytes_per_second"] == {ALICE: 250_000.0, ("2", "produce", "bob"): 250_000.0}


def test_gauges_show_the_highest_of_a_minute_then_0_then_nothing(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    bob = {"bucket_user": "bob"}
    exporter.judged(10, decision(0, **THROTTLED), decision(9, **bob))
    name = "bucket_quota_used_ratio"
    assert exporter.judged(40, decision(10), decision(39, **bob))[name][ALICE] == 1.5
    # The newest decision is that of second 65: those through second 5 are older than a minute.
    assert exporter.judged(66, decision(65, **bob))[name][ALICE] == 0.25
    assert exporter.judged(91, decision(90, **bob))[name][ALICE] == 0.0
    assert ALICE in exporter.judged(340, decision(339, **bob))["bucket_limit_bytes_per_second"] | {ALICE: 0}
    found = exporter.judged(
        341, decision(340, **bob)
    )  # five minutes and a second after the last one was read
    assert list(found[name]) == [("produce", "bob")]


def test_the_longest_throttle_is_the_brokers_own_of_the_last_minute(tmp_path: Path) -> None:
    exporter, name = Exporter(tmp_path), "bucket_longest_throttle_seconds"
    throttled = {"throttle_ms": 400, "observed_throttle_ms": 380, "observed_total_throttle_ms": 380}
    shorter = throttled | {"observed_throttle_ms": 20}
    assert exporter.judged(10, decision(0, **throttled), decision(1, **shorter))[name] == {ALICE: 0.38}
    metered = {"broker_id": 2, "throttle_ms": None, "observed_throttle_ms": 250, "source": "jmx"}
    # Of broker 2 there is JMX alone: the mean of its last minute. Alice's second 1 is older than a minute.
    found = exporter.judged(66, decision(65), decision(65, **metered, bucket_user="bob"))
    assert found[name] == {ALICE: 0.0, ("2", "produce", "bob"): 0.25}


def test_tables_that_stand_still_do_not_freeze_the_scrape(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(10, decision(9))
    still = exporter.judged(311)
    assert [name for name in still if name.startswith("bucket_")] == []
    assert still["newest_decision_timestamp_seconds"] == {(): T0_MS / 1_000 + 9}  # how old it is can be seen
    # Nor does an exporter whose looks fail: after five minutes it speaks of itself alone.
    assert {name for name in exporter.scraped(612) if not name.startswith("exporter_")} == set()
    assert exporter.scraped(612)["exporter_last_refresh_timestamp_seconds"] == {(): T0_MS / 1_000 + 311}


def test_old_tables_show_their_age_and_no_buckets(tmp_path: Path) -> None:
    found = Exporter(tmp_path).judged(86_400, decision(0))
    assert [name for name in found if name.startswith("bucket_")] == []
    assert found["table_newest_timestamp_seconds"] == {("decisions",): T0_MS / 1_000}


def test_what_no_limit_applies_to_is_unmetered(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0))
    free = {
        "limit_per_s": None,
        "level": None,
        "rule": None,
        "quota_used_percent": None,
        "bucket_user": "eve",
    }
    found = exporter.judged(9, decision(1), decision(2, **free, amount=7_000))
    assert found["unmetered_bytes_total"] == {("produce",): 7_000}
    assert ("produce", "eve") not in found["bucket_quota_used_ratio"]
    assert found["bucket_bytes_total"] == {ALICE: 1_000, ("produce", "eve"): 7_000}


def test_agreement_and_certainty_are_ratios_and_counters(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0, requests_judged=7, requests_agreeing=7))
    found = exporter.judged(
        9, decision(1, requests_judged=3, requests_agreeing=1), decision(2, is_certain=False)
    )
    of_type = ("produce",)
    assert found["agreement_ratio"] == {of_type: 9 / 11}  # 7 + 1 + 1 of 7 + 3 + 1
    assert found["certain_ratio"] == {of_type: 2 / 3}
    assert found["requests_judged_total"] == {of_type: 4} and found["requests_agreeing_total"] == {of_type: 2}
    assert found["decisions_total"] == {of_type: 2} and found["certain_decisions_total"] == {of_type: 1}


def test_the_other_tables_say_how_old_they_are(tmp_path: Path) -> None:
    write_table(tmp_path, "requests", request(0), heartbeat(1, T0_MS + 2_500))
    write_table(tmp_path, "usage", usage(1))
    write_table(
        tmp_path, "violations", violation(0), violation(3, None), violation(4, None, quota_type="fetch")
    )
    write_table(tmp_path, "quota_rules", source(9))
    exporter = Exporter(tmp_path)
    found = exporter.judged(10, decision(1))
    t0_s = T0_MS / 1_000
    assert found["table_newest_timestamp_seconds"] == {
        ("decisions",): t0_s + 1, ("requests",): t0_s + 2.5, ("usage",): t0_s + 1
    }  # fmt: skip
    assert found["open_violations"] == {("fetch",): 1, ("produce",): 1}
    assert found["quotas_known_through_timestamp_seconds"] == {(): t0_s + 9}
    # A line of a broker whose clock is an hour ahead does not hide that the table stands still.
    write_table(tmp_path, "requests", request(2, T0_MS + 3_600_000))
    write_table(tmp_path, "usage", usage(20))
    again = exporter.judged(25)["table_newest_timestamp_seconds"]
    assert (again["requests",], again["usage",]) == (t0_s + 2.5, t0_s + 20)


@pytest.mark.parametrize("name", ['x"} 1\nforged{y="', "a\\", "\n# HELP", "ü\u202e\x00"])
def test_no_name_of_a_client_breaks_out_of_its_label(tmp_path: Path, name: str) -> None:
    exporter = Exporter(tmp_path)
    exporter.judged(0, decision(0, bucket_user=name, bucket_client_id=name, rule=name))
    labels = {
        labels for samples in parsed_exposition(exporter.text(0)).values() for labels in samples
        if dict(labels).get("user")
    }  # fmt: skip
    assert {dict(one)["user"] for one in labels} == {name}


def test_no_tables_yet_is_no_error_and_a_broken_one_is(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    assert set(exporter.judged(0)) == {
        f"exporter_{name}" for name in (
            "build_info", "refreshes_total", "refresh_errors_total", "refresh_duration_seconds", "shown_buckets",
            "last_refresh_timestamp_seconds",
        )
    }  # fmt: skip
    exporter.judged(5, decision(0))
    write_table(tmp_path, "decisions", decision(1))
    log = tmp_path / "decisions" / "_delta_log" / "00000000000000000002.json"
    text = log.read_text()
    log.write_text("{")
    with pytest.raises(UserError, match="the log of table decisions cannot be read"):
        exporter.refresh(20)
    log.write_text(text)
    assert exporter.judged(35)["bucket_bytes_total"] == {ALICE: 1_000}  # nothing was skipped


def test_once_prints_the_scrape_of_the_newest_decision(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(0))
    code, out, err = run("exporter", "--once", "--tables", str(tmp_path))
    assert (code, err) == (0, "")
    assert 'kquota_bucket_quota_used_ratio{cluster_id="kafka"' not in out  # another cluster's
    (tmp_path / "kquota.yaml").write_text(f"cluster_id: demo\ntables: {tmp_path}\n")
    code, out, err = run("exporter", "--once", "--config", str(tmp_path / "kquota.yaml"))
    alice = 'kquota_bucket_quota_used_ratio{cluster_id="demo",broker_id="1",quota_type="produce",user="alice"} 0.25'
    assert (code, err) == (0, "") and alice in out.splitlines()


def test_the_endpoint_answers_and_ends_at_sigterm(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(0))
    program = [sys.executable, "-m", "kquota_spark.cli.main", "exporter", "--port", "0"]
    with subprocess.Popen(
        [*program, "--interval", "1s", "--tables", str(tmp_path)],
        stderr=subprocess.PIPE, text=True,
    ) as exporter:  # fmt: skip
        assert exporter.stderr is not None
        line = exporter.stderr.readline()
        assert line.startswith("exporter: answering http://127.0.0.1:")
        with urllib.request.urlopen(line.split()[2].rstrip(";"), timeout=120) as answer:
            assert "kquota_exporter_build_info" in answer.read().decode()
        # More than one signal at a time is what a supervisor sends to a group of processes.
        for _ in range(5_000):
            os.kill(exporter.pid, signal.SIGTERM)
        assert exporter.wait(120) == 0


def test_a_used_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run("exporter", "--port", str(port), "--tables", str(tmp_path))
    assert code == 1
    assert err == (
        f"kquota: --port: 127.0.0.1:{port} cannot be listened on (Address already in use): "
        "give --port another port\n"
    )


def test_one_scrape_without_tables_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # which has no conf/kquota.yaml
    assert run("exporter", "--once", "--tables", str(tmp_path / "none")) == (
        1,
        "",
        (
            f"kquota: tables path {tmp_path}/none does not exist: run the audit first, or name its settings: "
            "--config FILE\n"
        ),
    )
