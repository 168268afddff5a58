"""What `kquota replay` shows besides its summary: buckets, requests, other windows, other sources of quotas."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.store.rules_tables import RulesTables
from tests.support.logs.log_lines import PRODUCE_V9
from tests.support.places import DATA
from tests.support.programs.command_output import as_json, run, shown

TELEGRAF = ("replay", str(DATA / "jmx-telegraf" / "broker-1.kafka-request.log.gz"))
QUOTAS = ("--quotas", str(DATA / "jmx-telegraf" / "quotas.yaml"))
PLAIN = (
    "replay", str(DATA / "zk39-plain" / "broker-7.kafka-request.log.gz"),
    "--quotas", str(DATA / "zk39-plain" / "quotas.yaml"), "--apply-lag-ms", "95",
    "--window-num", "5", "--window-size-seconds", "2",
)  # fmt: skip

# Of the summary's 571 produce requests: 108 + 164 + 222 + 77; of its 104 throttled by the broker: 42 + 62.
BUCKETS = """\
                                                            throttled
type      bucket                  limit  requests   amount   requests    total delay  wrong  unsure
produce   other                500 kB/s       108  27.7 MB    41 / 42  39.6 / 39.6 s      3       1
produce   loader               1.0 MB/s       164  41.5 MB    62 / 62  21.6 / 21.6 s      0       4
fetch     loader               2.0 MB/s        10  21.0 MB      3 / 3  2.76 / 2.76 s      0       0
produce   free                     none       222  41.5 MB      0 / 0       0 / 0 ms      0       0
produce   Telegraf                 none        77   119 kB      0 / 0       0 / 0 ms      0       0
fetch     kafka-python-3.0.12      none         7   114 kB      0 / 0       0 / 0 ms      0       0
mutation  kafka-python-3.0.12      none         1        4      0 / 0       0 / 0 ms      0       0
throttled requests, total delay: by replay / by brokers; limit: the last in force
"""
REQUESTS = """\
 record time  type      bucket               amount     limit   used  throttle  verdict
06:24:48.150  mutation  kafka-python-3.0.12       4      none      -  0 / 0 ms  agrees
06:24:48.724  produce   other                228 kB  500 kB/s  4.5 %  0 / 0 ms  agrees
06:24:48.827  produce   loader               262 kB  1.0 MB/s  2.6 %  0 / 0 ms  agrees
times in UTC; throttle: by replay / by brokers
there are more: --limit 0 shows all
"""
WINDOWS = """\

windows of 11x1 s / 10x3 s: burst after idleness, throttled requests, total delay; by replay only
type     bucket     limit              burst  throttled requests    total delay
produce  other   500 kB/s   5.0 MB / 13.5 MB             41 / 31  39.6 / 74.6 s
produce  loader  1.0 MB/s  10.0 MB / 27.0 MB             62 / 20  21.6 / 60.9 s
total burst of 10 / 27 s of the limit, throttled 103 / 51 requests, total delay 61.3 / 135 s
note: demand is censored: clients that are throttled send later or less, so the other windows would
      have seen other requests; a throttled fetch counts as empty, as the log has no size of it
"""


def after_summary(*arguments: str) -> str:
    text, summary = shown(*TELEGRAF, *QUOTAS, *arguments), shown(*TELEGRAF, *QUOTAS)
    assert text.startswith(summary)
    return text.removeprefix(summary)


def test_a_line_for_each_bucket() -> None:
    assert after_summary("--by", "bucket") == BUCKETS


def test_a_line_for_each_request() -> None:
    assert after_summary("--by", "request", "--limit", "3") == REQUESTS


def test_buckets_add_up_to_the_summary() -> None:
    answer = as_json(*PLAIN, "--by", "bucket")
    buckets = answer["buckets"]
    assert sum(row["requests"] for row in buckets) == answer["verdicts"]
    assert sum(row["uncertain"] for row in buckets) == answer["uncertain"]
    wrong = answer["false_positive"] + answer["false_negative"] + answer["uncertain_wrong"]
    assert sum(row["wrong"] for row in buckets) == wrong
    longest = [row["delay_ms"] for row in buckets]
    assert longest == sorted(longest, reverse=True)


def test_requests_add_up_to_the_buckets() -> None:
    requests = as_json(*TELEGRAF, *QUOTAS, "--by", "request")["requests"]
    buckets = as_json(*TELEGRAF, *QUOTAS, "--by", "bucket")["buckets"]
    times = [row["record_time"] for row in requests]
    assert times == sorted(times)
    for bucket in buckets:
        of_bucket = [
            row for row in requests
            if (row["quota_type"], row["bucket_client_id"]) == (bucket["quota_type"], bucket["bucket_client_id"])
        ]  # fmt: skip
        assert len(of_bucket) == bucket["requests"]
        sums = (
            ("amount", "amount"),
            ("throttle_ms", "delay_ms"),
            ("throttle_by_replay_ms", "delay_by_replay_ms"),
        )
        for name, of_bucket_name in sums:
            assert sum(row[name] for row in of_bucket) == bucket[of_bucket_name]


def test_two_window_shapes_side_by_side() -> None:
    assert after_summary("--compare-window", "10x3") == WINDOWS


def test_the_brokers_own_windows_compared_with_themselves() -> None:
    answer = as_json(*PLAIN, "--compare-window", "5x2")["compare_window"]
    assert {name: answer["now"][name] for name in ("window_num", "window_size_seconds", "burst_seconds")} == {
        "window_num": 5, "window_size_seconds": 2, "burst_seconds": 8,
    }  # fmt: skip
    assert answer["now"] == answer["other"]
    assert answer["now"]["throttled_requests_by_replay"] > 1_000
    for row in answer["rows"]:
        assert row["now"] == row["other"]
        assert row["now"]["burst_bytes"] == 8 * row["limit_per_s"]  # (5 - 1) x 2 s


def test_the_model_alone_throttles_produce_as_the_replay_does() -> None:
    answer = as_json(*TELEGRAF, *QUOTAS, "--compare-window", "30x1", "--by", "bucket")
    ours = {row["bucket_client_id"]: row for row in answer["buckets"] if row["quota_type"] == "produce"}
    compared = {
        row["bucket_client_id"]: row
        for row in answer["compare_window"]["rows"]
        if row["quota_type"] == "produce"
    }
    for client_id in ("other", "loader"):
        for name in ("throttled_requests_by_replay", "delay_by_replay_ms"):
            assert compared[client_id]["now"][name] == ours[client_id][name]
    assert "free" not in compared  # nothing limits it


def test_the_table_of_rules_gives_the_verdicts_of_the_file(tmp_path: Path) -> None:
    tables = RulesTables(str(tmp_path), "demo", source="file", apply_lag_ms=0)
    tables.write_file(read_quota_file(DATA / "jmx-telegraf" / "quotas.yaml"), 0)
    by_file, by_table = as_json(*TELEGRAF, *QUOTAS), as_json(*TELEGRAF, "--tables", str(tmp_path))
    assert by_table.pop("source") == f"table quota_rules under {tmp_path}"
    by_file.pop("source")
    assert by_table == by_file


def test_edits_that_the_table_has_not_seen_are_noted(tmp_path: Path) -> None:
    end_ms = 1_795_242_347_784  # 06:25:47.784 UTC, the last line of the log
    for known_through_ms, count in ((end_ms - 1_000, 1), (end_ms, 0)):
        root = tmp_path / str(known_through_ms)
        tables = RulesTables(str(root), "demo", source="zookeeper", apply_lag_ms=0)
        tables.append(read_quota_file(DATA / "jmx-telegraf" / "quotas.yaml"), (), 0)
        tables.write_rules(known_through_ms)
        assert len(as_json(*TELEGRAF, "--tables", str(root))["notes"]) == count


def test_a_static_default_limits_who_has_no_quota() -> None:
    def limits(*options: str) -> dict[str, Any]:
        rows = as_json(*TELEGRAF, *QUOTAS, "--by", "bucket", *options)["buckets"]
        return {row["bucket_client_id"]: row["limit_per_s"] for row in rows if row["quota_type"] == "produce"}

    assert limits() == {"other": 500_000.0, "loader": 1_000_000.0, "free": None, "Telegraf": None}
    assert limits("--producer-default", "7", "--broker-version", "2.8")["free"] == 7.0
    assert limits("--consumer-default", "7", "--broker-version", "2.8")["free"] is None


def test_a_callback_makes_the_buckets(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.yaml"
    callback = "kquota_spark.model.quotas.group_callbacks:GroupedUserCallback"
    # Everyone is ANONYMOUS: with this separator their group is "A".
    options = ("--quotas", str(quotas), "--callback", callback, "--callback-option", "separator=NONYMOUS")
    quotas.write_text("- {user: ANONYMOUS, type: producer_byte_rate, value: 1000000}\n", encoding="utf-8")
    answer = as_json(*TELEGRAF, *options, "--by", "bucket")
    assert [(row["quota_type"], row["bucket_tags"], row["rule"]) for row in answer["buckets"]] == [
        ("produce", {"group": "A"}, callback), ("fetch", {}, None), ("controller_mutation", {}, None),
    ]  # fmt: skip
    # A file of quotas does not tell who led which partition.
    assert answer["notes"] == ["leaders of partitions are not known here: the callback is asked without them"]
    assert "produce   group=A  1.0 MB/s       571" in shown(*TELEGRAF, *options, "--by", "bucket")


def test_a_broken_callback_is_one_line() -> None:
    options = ("--callback", "kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback")
    code, out, err = run(*TELEGRAF, *QUOTAS, *options, "--callback-option", "separator=")
    assert (code, out) == (1, "")
    assert err.startswith(
        "kquota: quota callback kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback: "
    )
    assert err.count("\n") == 1


def test_a_summary_says_why_lines_were_not_read(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    junk = [*["java.io.IOException"] * 3, "[2026-11-21 05:40:48,390] DEBUG Completed request:{"]
    log.write_text("".join(f"{line}\n" for line in junk) + PRODUCE_V9.decode() + "\n", encoding="utf-8")
    assert shown("replay", str(log), *QUOTAS).startswith(
        "5 lines, 4 unreadable, 1 counted\n"
        "unreadable: 3 x no 'Completed request:' near the start\n"
        "unreadable: 1 x text form: no request header as Kafka 0.10.2 to 2.7 prints it\n"
    )


def test_usage() -> None:
    for arguments in (["--compare-window", "30"], ["--compare-window", "0x1"], ["--by", "user"]):
        with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(io.StringIO()):
            main([*TELEGRAF, *arguments])
        assert stopped.value.code == 2
