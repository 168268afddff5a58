"""The count equation finds what was planted and nothing else; a missing server is a finding."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.io.kafka_checks import connection_options
from kquota_spark.io.log_topic_checks import Message, message_checks
from tests.unit.table_rows import (
    T0_MS,
    decision,
    heartbeat,
    request,
    run,
    second,
    source,
    unreadable,
    usage,
    violation,
    write_table,
)

NOW_MS = T0_MS + 10_000

# Two seconds of one request each, a heartbeat, and a request that is not yet measured.
_REQUESTS = (
    request(0),
    request(1, T0_MS + 1_000),
    heartbeat(2, T0_MS + 1_500),
    request(3, T0_MS + 5_000),
    request(4, quota_type=None, api_key=3),  # METADATA: no bandwidth quota counts it
)
_USAGE = (usage(0), usage(1))
_DECISIONS = (decision(0), decision(1))


def _tables(
    root: Path,
    requests: tuple[dict[str, Any], ...] = _REQUESTS,
    *,
    usages: tuple[dict[str, Any], ...] = _USAGE,
    decisions: tuple[dict[str, Any], ...] = _DECISIONS,
    violations: tuple[dict[str, Any], ...] = (),
    rules: tuple[dict[str, Any], ...] = (source(9),),
) -> Path:
    write_table(root, "requests", *requests)
    write_table(root, "usage", *usages)
    write_table(root, "decisions", *decisions)
    write_table(root, "violations", *violations)
    write_table(root, "quota_rules", *rules)
    return root


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kquota_spark.cli.doctor.now_ms", lambda: NOW_MS)


def _findings(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and (status, what, evidence) of everything that is not ok."""
    code = run("doctor", "--tables", str(root), "--output", "json")
    rows = json.loads(capsys.readouterr().out)["rows"]
    return code, [(row["status"], row["what"], row["evidence"]) for row in rows if row["status"] != "ok"]


def test_a_healthy_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--tables", str(_tables(tmp_path))) == 0
    assert capsys.readouterr().out == _HEALTHY


_HEALTHY = """\
check  what               evidence -> what to do
ok     lines              demo: 5 lines = 4 requests + 0 unreadable + 1 heartbeats
ok     duplicates         demo: 0 lines came more than once; each counts once
ok     offsets            demo: log-0: 0 to 4 without a gap
ok     unreadable         demo: 0 of 5 lines (0.000 %)
ok     measured           demo: 3 chargeable requests = 2 in usage + 0 copies + 1 not yet measured + 0 late
ok     judged             demo: 2 requests in usage = 2 in decisions + 0 late + 0 not yet judged
ok     ingest             demo: the newest line is of 2026-11-21 05:40:05 UTC, 4 s behind
ok     measure            demo: usage through 2026-11-21 05:40:01 UTC, 4 s behind
ok     judge              demo: decisions through 2026-11-21 05:40:01 UTC, 0 s behind
ok     quota snapshot     demo: quotas are known through 2026-11-21 05:40:09 UTC
ok     agreement produce  demo: 100.00 % of 2 verdicts agree with the broker (0 false alarms, 0 misses); \
not judged: 0 uncertain, 0 inferred, 0 under a request quota
ok     violations         none
"""


def test_a_gap_in_the_offsets_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(7, T0_MS + 6_000), request(9, T0_MS + 6_000))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert code == 2
    assert findings == [("fail", "offsets", "demo: log-0: 3 offsets missing, the first 5 to 6")]


def test_an_offset_that_was_stored_twice_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(3, T0_MS + 5_000))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert code == 2
    assert ("fail", "offsets", "demo: log-0: 1 of 6 rows repeat an offset") in findings


def test_a_line_that_was_delivered_twice_is_counted_and_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tuple(request(10 + n, T0_MS, correlation_id=n + 10) for n in range(200))
    copy = request(210, T0_MS, correlation_id=10)
    requests = (*(request(n, T0_MS + 100_000) for n in range(10)), *many, copy)
    usages = (usage(0, requests=200, duplicates=1),)
    root = _tables(tmp_path, requests, usages=usages, decisions=(decision(0, requests=200),))
    assert run("doctor", "--tables", str(root)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok     duplicates         demo: 1 lines came more than once; each counts once" in lines
    assert (
        "ok     measured           demo: 211 chargeable requests = 200 in usage + 1 copies + "
        "10 not yet measured + 0 late"
    ) in lines


def test_many_copies_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(5, correlation_id=0))
    usages = (usage(0, duplicates=1), usage(1))
    code, findings = _findings(_tables(tmp_path, requests, usages=usages), capsys)
    assert (code, findings) == (
        0,
        [("warn", "duplicates", "demo: 1 lines came more than once; each counts once")],
    )


def test_a_late_line_is_told_from_one_that_is_not_yet_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = (*_REQUESTS, request(5, T0_MS + 300))
    code, findings = _findings(_tables(tmp_path, requests), capsys)
    assert (code, findings) == (
        0,
        [
            (
                "warn",
                "measured",
                (
                    "demo: 4 chargeable requests = 2 in usage + 0 copies + 1 not yet measured + 1 late, "
                    "from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:01 UTC"
                ),
            )
        ],
    )


def test_a_surplus_does_not_hide_a_late_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = (*_REQUESTS, request(5, T0_MS + 300))
    usages = (usage(0), usage(1), usage(1, client_id="twice"))
    code, findings = _findings(_tables(tmp_path, requests, usages=usages), capsys)
    assert code == 2
    assert findings[0] == (
        "fail",
        "measured",
        (
            "demo: 4 chargeable requests = 3 in usage + 0 copies + 1 not yet measured + 1 late; "
            "usage holds 1 that requests does not, from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:02 UTC"
        ),
    )


def test_a_line_from_the_future_is_kept_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    future = request(5, T0_MS + 9_000_000, is_out_of_time=True, kafka_timestamp_ms=T0_MS)
    code, findings = _findings(_tables(tmp_path, (*_REQUESTS, future)), capsys)
    assert (code, findings) == (
        0,
        [("warn", "future lines", "demo: 1 lines are ahead of their Kafka timestamp")],
    )


def test_seconds_that_were_never_judged_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _tables(tmp_path, decisions=(decision(1),))
    evidence = (
        "demo: 2 requests in usage = 1 in decisions + 0 late + 0 not yet judged + 1 missing, "
        "from 2026-11-21 05:40:00 UTC to 2026-11-21 05:40:01 UTC"
    )
    assert _findings(root, capsys) == (0, [("warn", "judged", evidence)])  # the job may still be at it
    monkeypatch.setattr("kquota_spark.cli.doctor.now_ms", lambda: NOW_MS + 3_600_000)
    code, findings = _findings(root, capsys)
    assert code == 2
    assert ("fail", "judged", evidence) in findings


def test_late_requests_of_judge_close_the_equation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = (decision(0, requests=0, late=1, requests_judged=0, requests_agreeing=0), decision(1))
    code, findings = _findings(_tables(tmp_path, decisions=decisions), capsys)
    evidence = "demo: 2 requests in usage = 1 in decisions + 1 late + 0 not yet judged"
    assert (code, findings) == (0, [("warn", "judged", evidence)])


def test_unreadable_lines_are_told_with_their_reasons_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _tables(tmp_path, (*_REQUESTS, unreadable(5, "not \x1b[2JJSON"), unreadable(6, "not \x1b[2JJSON")))
    assert run("doctor", "--tables", str(root)) == 0
    assert (
        "warn   unreadable         demo: 2 of 7 lines (28.571 %): 2 not \\x1b[2JJSON -> "
        "kept in requests with reason and raw_text: fix what writes them, or the format\n"
    ) in capsys.readouterr().out


def test_a_finished_run_is_behind_but_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.cli.doctor.now_ms", lambda: NOW_MS + 86_400_000)
    code, findings = _findings(_tables(tmp_path), capsys)
    assert (code, findings) == (
        0,
        [
            ("warn", "ingest", "demo: the newest line is of 2026-11-21 05:40:05 UTC, 86,404 s behind"),
            (
                "warn",
                "quota snapshot",
                "demo: quotas are known through 2026-11-21 05:40:09 UTC, 86,401 s ago",
            ),
        ],
    )


@pytest.mark.parametrize(
    ("rules", "decisions", "status", "evidence"),
    [
        ((), _DECISIONS, "fail", "demo: no source says through when its quotas are known"),
        ((source(9), source(8)), _DECISIONS, "fail", "demo: quota_rules has 2 sources (level 0), expected 1"),
        (
            (source(9),),
            (decision(0, is_rules_behind=True), decision(1)),
            "warn",
            (
                "demo: quotas are known through 2026-11-21 05:40:09 UTC; 1 decisions were made with older "
                "ones and are marked rules_behind"
            ),
        ),
    ],
)
def test_quotas_that_were_not_known(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    rules: tuple[dict[str, Any], ...],
    decisions: tuple[dict[str, Any], ...],
    status: str,
    evidence: str,
) -> None:
    code, findings = _findings(_tables(tmp_path, decisions=decisions, rules=rules), capsys)
    assert (code, findings) == (2 if status == "fail" else 0, [(status, "quota snapshot", evidence)])


def test_agreement_below_99_percent_names_likely_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = decision(0, requests_judged=100, requests_agreeing=97, false_positive=1, false_negative=2)
    root = _tables(tmp_path, decisions=(wrong, decision(1)))
    assert run("doctor", "--tables", str(root)) == 0
    # 98 of 101: 97.03 %.
    assert (
        "warn   agreement produce  demo: 97.03 % of 101 verdicts agree with the broker (1 false alarms, "
        "2 misses); not judged: 0 uncertain, 0 inferred, 0 under a request quota -> check "
        "broker.quota_window_num, quota_window_size_seconds and version against the brokers, "
        "their clocks and log_time_zone, a request quota, and client.quota.callback.class\n"
    ) in capsys.readouterr().out


def test_open_violations_are_counted_and_one_that_should_have_ended_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _tables(tmp_path, violations=(violation(0), violation(1, None)))
    assert _findings(root, capsys) == (0, [])
    run("doctor", "--tables", str(root))
    assert "ok     violations         demo: 2 episodes, 1 open\n" in capsys.readouterr().out
    write_table(root, "decisions", decision(600, requests=0))
    _, findings = _findings(root, capsys)
    text = "demo: 2 episodes, 1 open, one without a violated second since 2026-11-21 05:40:01 UTC"
    assert ("warn", "violations", text) in findings


def test_a_missing_table_is_a_finding_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, "requests", *_REQUESTS)
    code, findings = _findings(tmp_path, capsys)
    assert code == 2
    assert findings == [
        ("fail", f"table {name}", f"table {name} is missing under {tmp_path}")
        for name in ("violations", "decisions", "usage", "quota_rules")
    ]


def test_retention_of_whole_days_is_no_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Midnight is T0 + 18 h 20 min. Offset 2 belonged to the day before, and was deleted with it.
    midnight_ms = T0_MS + 66_000_000
    dates = {0: second(66_000).date(), 1: second(66_000 + 86_400).date()}
    requests = (
        request(1, midnight_ms + 1, event_date=dates[0]),
        request(3, midnight_ms + 2, event_date=dates[0]),
        request(4, midnight_ms + 700_000, event_date=dates[0]),
        request(5, midnight_ms + 86_400_000, event_date=dates[1]),
    )
    write_table(tmp_path, "requests", *requests)
    run("doctor", "--tables", str(tmp_path))
    assert "ok     offsets            demo: log-0: 4 to 5 without a gap\n" in capsys.readouterr().out


def _closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_before_the_first_run_missing_servers_are_findings_in_bounded_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.io.kafka_checks.TIMEOUT_MS", 500)
    config = tmp_path / "kquota.yaml"
    kafka, zookeeper = _closed_port(), _closed_port()
    config.write_text(
        f"tables: {tmp_path}/new/tables\ncheckpoints: {config}/none\n"
        f"kafka: {{bootstrap_servers: '127.0.0.1:{kafka}', options: {{sasl.password: canary}}}}\n"
        f"quotas: {{zookeeper_connect: '127.0.0.1:{zookeeper}', connect_timeout: 1 s}}\n",
        encoding="utf-8",
    )
    started_s = time.monotonic()
    assert run("doctor", "--before", "--config", str(config), "--output", "json") == 2
    assert time.monotonic() - started_s < 30
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "canary" not in printed.out
    rows = {row["what"]: row for row in json.loads(printed.out)["rows"]}
    assert rows["settings"]["evidence"] == f"{config} is valid"
    assert rows["tables"] == {
        "status": "ok",
        "what": "tables",
        "evidence": f"{tmp_path}/new/tables can be written",
        "advice": "",
    }
    assert (rows["checkpoints"]["status"], rows["checkpoints"]["evidence"]) == (
        "fail",
        f"{config}/none: {config} cannot be written",
    )
    assert (rows["ZooKeeper"]["status"], rows["ZooKeeper"]["evidence"]) == (
        "fail",
        f"127.0.0.1:{zookeeper} does not answer within 1 s",
    )
    assert rows["Kafka"]["status"] == "fail"
    assert re.fullmatch(
        rf"127\.0\.0\.1:{kafka} does not answer as expected \(\w+\)", rows["Kafka"]["evidence"]
    )


def test_before_the_first_run_a_wrong_file_is_a_finding_per_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text("cluster: x\nbroker: {quota_window_num: 0}\n", encoding="utf-8")
    assert run("doctor", "--before", "--config", str(config), "--output", "csv") == 2
    assert capsys.readouterr().out.splitlines() == [
        "status,what,evidence,advice",
        f'fail,settings,"{config}: cluster: unknown key, did you mean cluster_id?",correct the file',
        f'fail,settings,"{config}: broker.quota_window_num: 0, expected 1 or more",correct the file',
    ]


def test_connection_options_are_taken_from_javas_or_librdkafkas_names() -> None:
    jaas = 'org.apache.kafka...PlainLoginModule required username="ann" password="p=\'w";'
    java = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert connection_options({**java, "fetch.max.wait.ms": "1"}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "p='w",
    }
    librdkafka = {"sasl.username": "ann", "ssl.ca.location": "ca.pem"}
    assert connection_options(librdkafka) == librdkafka


_LINE = (
    b'[2026-11-21 05:40:00,000] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":3,'
    b'"requestApiVersion":12,"correlationId":1,"clientId":"a"},"request":{},"connection":"c","principal":"User:a",'
    b'"localTimeMs":1.0,"remoteTimeMs":0.0,"responseQueueTimeMs":0.0,"sendTimeMs":0.0,"throttleTimeMs":0,'
    b'"response":{}} (kafka.request.logger)'
)
_BEAT = b'{"kquota_heartbeat":{"time_ms":1795239600000}}'


def _of_messages(
    *messages: Message, zone: str = "UTC", now_ms: int = T0_MS + 500
) -> list[tuple[str, str, str]]:
    checks = message_checks(messages, zone, [1, 2], now_ms)
    return [(check.status.value, check.what, check.evidence) for check in checks]


def test_a_log_topic_that_is_well() -> None:
    messages = (Message(_LINE, "1", T0_MS), Message(_BEAT, "1", T0_MS), Message(_BEAT, "2", T0_MS + 100))
    assert _of_messages(*messages) == [
        ("ok", "lines", "the newest message is 0.4 s old"),
        ("ok", "clock", "this machine and the newest message differ by 400 ms"),
        ("ok", "format", "1 recent lines can be read"),
        ("ok", "heartbeats", "from broker 1, 2"),
    ]


def test_a_log_topic_in_the_wrong_zone_with_garbage_and_a_silent_broker() -> None:
    messages = (Message(_LINE, "1", T0_MS), Message(b"garbage", "1", T0_MS), Message(_BEAT, "1", T0_MS))
    # 05:40 in Tokyo is 20:40 UTC of the day before.
    assert _of_messages(*messages, zone="Asia/Tokyo") == [
        ("ok", "lines", "the newest message is 0.5 s old"),
        ("ok", "clock", "this machine and the newest message differ by 500 ms"),
        ("fail", "time zone", "log times differ from Kafka's by -9.00 h"),
        ("warn", "format", "1 of 2 recent lines: no 'Completed request:' near the start"),
        ("warn", "heartbeats", "none in the last seconds from broker 2"),
    ]


def test_a_log_topic_that_stands_still_or_is_ahead() -> None:
    old = _of_messages(Message(_BEAT, "1", T0_MS), now_ms=T0_MS + 90_000)
    assert old[0] == ("warn", "lines", "the newest message is 90.0 s old")
    assert old[-1] == ("warn", "heartbeats", "none in the last seconds from broker 1, 2")
    ahead = _of_messages(Message(_LINE, "1", T0_MS), now_ms=T0_MS - 7_000)
    assert ahead[1] == ("warn", "clock", "the newest message is 7.0 s ahead of this machine's clock")
