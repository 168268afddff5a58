"""Whole outputs of the reading commands over small real Delta tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest

from kquota_spark.cli.options import since
from kquota_spark.config.settings import Settings
from tests.support.tables.table_rows import T0_MS, decision, run, usage, violation, write_table

HOSTILE = "\x1b[31mred\n=cmd()\u202eevil"

_VIOLATIONS_TABLE = """\
                                                                                    total  throttled
   start  lasted  broker  type     bucket                          limit     used   delay   requests
05:41:00    open       2  fetch    user bob                     1.0 MB/s    512 %  950 ms          0
05:40:30    10 s       1  produce  client \\x1b[31mred…202eevil  1.0 MB/s  123.5 %  12.3 s         42
05:40:00     5 s       1  produce  user alice                   1.0 MB/s  123.5 %  12.3 s         42
3 violations, newest first; times in UTC on 2026-11-21
agreement 100.00 % of 3 certain verdicts
total delay, throttled requests: by replay
not shown: rule, peak, longest throttle (a wider terminal shows more, --output csv everything)
"""
_DECISIONS_TABLE = """\
                                                                          longest
    time  broker  type     bucket            limit      rate     used    throttle  requests  certain
05:40:02       1  produce  client =cmd()      none  250 kB/s        -    0 / 0 ms         1       no
05:40:01       1  produce  user alice     1.0 MB/s  1.2 MB/s  120.0 %  95 / 96 ms        10      yes
05:40:00       1  produce  user alice     1.0 MB/s  250 kB/s   25.0 %    0 / 0 ms         1      yes
3 decisions, newest first; times in UTC on 2026-11-21
agreement 100.00 % of 3 certain verdicts
longest throttle: by replay / by brokers
not shown: rule, total delay, throttled requests (a wider terminal shows more, --output csv
everything)
"""

_AGREEMENT = (
    '"agreement": {"agreement_percent": 100.0, "requests_judged": 3, "requests_agreeing": 3, '
    '"false_positive": 0, "false_negative": 0, "uncertain": 0, "inferred": 0, "excluded": 0}, '
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    write_table(
        root,
        "violations",
        violation(0),
        violation(
            60, None, bucket_user="bob", users=["bob"], rule="users/<default>", broker_id=2,
            quota_type="fetch", peak_quota_used_percent=512.0, throttled_ms=950, throttled_requests=0,
        ),
        violation(
            30, 10, bucket_user="", bucket_client_id=HOSTILE, users=["alice", "carol"], client_ids=[HOSTILE],
            rule="clients/<default>",
        ),
    )  # fmt: skip
    write_table(
        root,
        "decisions",
        decision(0),
        decision(
            1, rate_per_s=1_200_000.0, quota_used_percent=120.0, throttle_ms=95, observed_throttle_ms=96,
            throttled_requests=2, observed_throttled_requests=2, requests=10,
        ),
        decision(
            2, bucket_user="", bucket_client_id="=cmd()", rule=None, level=None, limit_per_s=None,
            quota_used_percent=None, is_certain=False, users=["bob"], client_ids=["=cmd()"],
        ),
    )  # fmt: skip
    write_table(
        root,
        "usage",
        usage(0),
        usage(1, amount=3_000_000, requests=10_000, rate_per_s=3e6, observed_throttle_ms=15_000),
        usage(1, tile=1, amount=1_000_000, requests=5, rate_per_s=1e6, observed_throttle_ms=1_000),
        usage(
            2, user="bob", client_id="日本語", quota_type="fetch", broker_id=2, amount=500, rate_per_s=500.0
        ),
    )
    return root


def test_violations_are_shown_newest_first_and_hostile_names_stay_on_their_line(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("violations", "--tables", str(root)) == 0
    assert capsys.readouterr().out == _VIOLATIONS_TABLE


def test_open_violations_as_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("violations", "--tables", str(root), "--open", "--output", "json") == 0
    assert capsys.readouterr().out == (
        '{"command": "kquota violations", "version": 1, ' + _AGREEMENT + '"rows": [\n'
        '{"cluster_id": "demo", "episode_id": "e60", "broker_id": 2, "quota_type": "fetch", '
        '"bucket_user": "bob", "bucket_client_id": "", "bucket_tags": null, '
        '"start_time": "2026-11-21T05:41:00Z", "end_time": null, "last_second": "2026-11-21T05:41:00Z", '
        '"is_open": true, "level": 3, '
        '"rule": "users/<default>", "limit_per_s": 1000000.0, "peak_rate_per_s": 1234567.0, '
        '"peak_quota_used_percent": 512.0, "violated_seconds": 5, "delay_by_replay_ms": 950, '
        '"delay_ms": null, "throttled_requests_by_replay": 0, "throttled_requests": null, '
        '"longest_throttle_by_replay_ms": null, "longest_throttle_ms": null, '
        '"source": "log", "users": ["bob"], "client_ids": ["etl"]}\n'
        "]}\n"
    )


def test_hostile_names_come_back_equal_from_json_and_csv(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("violations", "--tables", str(root), "--client", HOSTILE, "--output", "json")
    text = capsys.readouterr().out
    assert not {"\x1b", "\u202e"} & set(text)
    (row,) = json.loads(text)["rows"]
    assert (row["bucket_client_id"], row["client_ids"]) == (HOSTILE, [HOSTILE])
    run("violations", "--tables", str(root), "--client", HOSTILE, "--output", "csv")
    (record,) = csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""))
    assert record["bucket_client_id"] == HOSTILE
    assert json.loads(record["client_ids"]) == [HOSTILE]


@pytest.mark.parametrize(
    ("filters", "episodes"),
    [
        ((), ["e60", "e30", "e0"]),
        (("--user", "carol"), ["e30"]),  # inside a client's bucket
        (("--user", "alice"), ["e30", "e0"]),
        (("--user", "' or 1=1 --"), []),
        (("--client", "etl"), ["e60", "e0"]),
        (("--client", ""), []),  # an empty tag is no tag
        (("--broker", "2"), ["e60"]),
        (("--type", "produce"), ["e30", "e0"]),
        (("--throttled",), ["e30", "e0"]),
        (("--since", "2026-11-21T05:40:40Z"), ["e60", "e30"]),
        (("--limit", "2"), ["e60", "e30"]),
    ],
)
def test_filters_of_violations(
    root: Path, capsys: pytest.CaptureFixture[str], filters: tuple[str, ...], episodes: list[str]
) -> None:
    assert run("violations", "--tables", str(root), "--output", "json", *filters) == 0
    assert [row["episode_id"] for row in json.loads(capsys.readouterr().out)["rows"]] == episodes


def test_decisions_show_ours_and_the_brokers_throttle(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decisions", "--tables", str(root)) == 0
    assert capsys.readouterr().out == _DECISIONS_TABLE


def test_decisions_as_csv_with_raw_numbers_and_no_formula(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("decisions", "--tables", str(root), "--client", "=cmd()", "--output", "csv") == 0
    assert capsys.readouterr().out == (
        "cluster_id,broker_id,quota_type,bucket_user,bucket_client_id,bucket_tags,second,level,rule,"
        "rule_version,limit_per_s,rate_per_s,quota_used_percent,amount,requests,longest_throttle_by_replay_ms,"
        "longest_throttle_ms,throttled_requests_by_replay,throttled_requests,delay_by_replay_ms,delay_ms,"
        "unsized_requests,late,is_certain,"
        "is_rules_behind,source,users,client_ids\n"
        "demo,1,produce,,'=cmd(),,2026-11-21T05:40:02Z,,,7,,250000.0,,1000,1,0,0,0,0,0,,,0,false,false,log,"
        '"[""bob""]","[""=cmd()""]"\n'
    )


def test_a_limit_says_that_there_is_more(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("decisions", "--tables", str(root), "--limit", "1")
    assert "1 decision, newest first; times in UTC on 2026-11-21; there are more: --limit 0 shows all\n" in (
        capsys.readouterr().out
    )


def test_usage_adds_tiles_up_and_measures_every_mean_over_the_same_time(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("usage", "--tables", str(root)) == 0
    # etl: 1,000 + 3,000,000 + 1,000,000 bytes over 3 s; its second tile belongs to the same second.
    assert capsys.readouterr().out == (
        "user   client id  type     broker  amount  requests      mean      peak  total delay\n"
        "alice  etl        produce       1  4.0 MB    10,006  1.3 MB/s  4.0 MB/s       16.0 s\n"
        "bob    日本語     fetch         2   500 B         1   167 B/s   500 B/s         0 ms\n"
        "2 clients, most bytes first\n3 s from 2026-11-21 05:40:00 UTC\n"
        "agreement 100.00 % of 3 certain verdicts\n"
        "mean: over all of that time; peak: highest second; total delay: by brokers\n"
    )


def test_usage_by_second(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("usage", "--tables", str(root), "--by-second", "--user", "alice", "--output", "json") == 0
    assert capsys.readouterr().out == (
        '{"command": "kquota usage --by-second", "version": 1, ' + _AGREEMENT + '"rows": [\n'
        '{"cluster_id": "demo", "broker_id": 1, "quota_type": "produce", '
        '"user": "alice", "client_id": "etl", '
        '"second": "2026-11-21T05:40:01Z", "amount": 4000000, "requests": 10005, "duplicates": 0, '
        '"rate_per_s": 4000000.0, "delay_ms": 16000, "source": "log", "unsized_requests": null},\n'
        '{"cluster_id": "demo", "broker_id": 1, "quota_type": "produce", '
        '"user": "alice", "client_id": "etl", '
        '"second": "2026-11-21T05:40:00Z", "amount": 1000, "requests": 1, "duplicates": 0, '
        '"rate_per_s": 1000.0, "delay_ms": 0, "source": "log", "unsized_requests": null}\n'
        "]}\n"
    )


def test_usage_since_leaves_older_seconds_out_of_sums_and_means(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("usage", "--tables", str(root), "--throttled", "--since", "2026-11-21T05:40:01Z")
    assert capsys.readouterr().out == (
        "user   client id  type     broker  amount  requests      mean      peak  total delay\n"
        "alice  etl        produce       1  4.0 MB    10,005  2.0 MB/s  4.0 MB/s       16.0 s\n"
        "1 client, most bytes first\n2 s from 2026-11-21 05:40:01 UTC\n"
        "agreement 100.00 % of 2 certain verdicts (all clients)\n"
        "mean: over all of that time; peak: highest second; total delay: by brokers\n"
    )


def test_usage_of_a_long_table_is_that_of_its_last_day_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A second before the day that ends with T0's second, and its first and last one; 86,400 s between.
    write_table(tmp_path, "usage", usage(-86_400, amount=5), usage(-86_399, amount=20), usage(0, amount=300))
    assert run("usage", "--tables", str(tmp_path), "--user", "alice") == 0
    assert capsys.readouterr().out == (
        "user   client id  type     broker  amount  requests   mean      peak  total delay\n"
        "alice  etl        produce       1   320 B         2  0 B/s  1.0 kB/s         0 ms\n"
        "1 client, most bytes first\n24 h from 2026-11-20 05:40:01 UTC\n"
        "the last day of the table: --since 7d asks for more\n"
        "mean: over all of that time; peak: highest second; total delay: by brokers\n"
    )
    assert run("usage", "--tables", str(tmp_path), "--since", "2026-11-01", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["amount"] == 325


def test_nothing_found_is_told_from_nothing_processed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("violations", "--tables", str(root), "--user", "d\x1bave", "--since", "2026-11-21") == 0
    assert capsys.readouterr().out == (
        "no violations match --user d\\x1bave --since 2026-11-21; user d\\x1bave was not seen in that time; the\n"
        "table decisions reaches 2026-11-21 05:40:02 UTC\n"
    )
    for name in ("violations", "decisions", "usage"):
        write_table(tmp_path, name)
    assert run("usage", "--tables", str(tmp_path)) == 0
    assert run("violations", "--tables", str(tmp_path), "--output", "json") == 0
    assert run("decisions", "--tables", str(tmp_path), "--since", "10m") == 0
    assert capsys.readouterr().out == (
        "no usage: the table usage is empty, has the audit processed anything yet?\n"
        '{"command": "kquota violations", "version": 1, "agreement": {"agreement_percent": null, '
        '"requests_judged": 0, "requests_agreeing": 0, "false_positive": 0, "false_negative": 0, '
        '"uncertain": 0, "inferred": 0, "excluded": 0}, "rows": []}\n'
        "no decisions match --since 10m: "
        "the table decisions is empty, has the audit processed anything yet?\n"
    )


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("30s", T0_MS - 30_000),
        ("10m", T0_MS - 600_000),
        ("10 min", T0_MS - 600_000),
        ("2h", T0_MS - 7_200_000),
        ("1d", T0_MS - 86_400_000),
        ("2026-11-21T05:40:00Z", T0_MS),
        ("2026-11-21T06:40:00+01:00", T0_MS),
        ("2026-11-21 05:40", T0_MS),
        ("2026-11-21 05:40:00 UTC", T0_MS),  # as every message prints it
    ],
)
def test_since_is_relative_to_now_or_iso_in_utc(text: str, time_ms: int) -> None:
    assert since(text, T0_MS).time_ms == time_ms


def test_a_wrong_since_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("usage", "--since", "yesterday")
    assert stop.value.code == 2
    assert "'yesterday', expected a length of time (30s, 10m, 2h, 1d)" in capsys.readouterr().err


def test_settings_come_from_the_file_that_config_names(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(f"tables: {root}\n", encoding="utf-8")
    assert run("violations", "--config", str(config), "--limit", "1", "--output", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert dataclasses.asdict(Settings())["tables"] == ".kquota/tables"


def test_usage_of_request_time_is_in_percent_of_a_thread_whoever_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_request = {"quota_type": "request", "amount": 250_000, "rate_per_s": 250_000.0}
    of_jmx = {"broker_id": 2, "amount": None, "requests": None, "duplicates": None, "source": "jmx"}
    rows = [usage(at_s, **of_request) for at_s in (0, 9)]
    rows += [usage(at_s, **of_request | of_jmx | {"rate_per_s": 12.5}) for at_s in (0, 9)]
    write_table(tmp_path, "usage", *rows)
    assert run("usage", "--tables", str(tmp_path), "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    # 500 ms in ten seconds, 250 ms in the busiest; JMX tells percent
    assert [(row["mean_rate_per_s"], row["peak_rate_per_s"]) for row in found] == [(5.0, 25.0), (12.5, 12.5)]
    assert run("usage", "--tables", str(tmp_path), "--by-second", "--output", "json") == 0
    assert {row["rate_per_s"] for row in json.loads(capsys.readouterr().out)["rows"]} == {25.0, 12.5}
