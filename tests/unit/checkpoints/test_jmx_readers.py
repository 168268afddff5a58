"""The reading commands beside JMX: nothing is added up twice, and what JMX does not show it is not made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.checkpoints.lineage import require_lineage, stored_lineage
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.doctor.checks import run_checks
from kquota_spark.reports.agreement.agreement import by
from kquota_spark.store.creation import has_rows
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    request,
    run,
    second,
    source,
    usage,
    violation,
    write_table,
)

UNKNOWN: dict[str, Any] = {
    "throttle_ms": None, "throttled_requests": None, "total_throttle_ms": None, "amount": None, "requests": None,
    "is_certain": False, "source": "jmx",
}  # fmt: skip


def sampled_usage(offset_s: int, **changed: Any) -> dict[str, Any]:
    nothing = {"amount": None, "requests": None, "duplicates": None, "observed_throttle_ms": None}
    return usage(offset_s, **nothing, client_id="", source="jmx", **changed)


def sample(offset: int, **changed: Any) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "event_date": second(0).date(), "kind": "sample", "topic": "jmx", "partition": 0,
        "kafka_offset": offset, "kafka_timestamp_ms": T0_MS, "broker_id": 1, "sample_time_ms": T0_MS,
        "mbean_type": "Produce", "quota_type": "produce", "bucket_user": "alice", "bucket_client_id": "",
        "byte_rate": 250_000.0, **changed,
    }  # fmt: skip


def test_usage_from_jmx_counts_only_where_the_log_tells_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(
        tmp_path,
        "usage",
        usage(0),
        sampled_usage(0, rate_per_s=900.0),  # broker 1 has a log: its bytes are known
        sampled_usage(0, rate_per_s=500.0, broker_id=2),
        sampled_usage(1, rate_per_s=1_500.0, broker_id=2),
        sampled_usage(1, rate_per_s=12.5, quota_type="request"),
    )
    assert run("usage", "--tables", str(tmp_path)) == 0
    # The mean of broker 2 is that of its samples; bytes and requests nobody knows.
    assert capsys.readouterr().out.splitlines()[:4] == [
        "user   client id  type     broker  amount  requests      mean      peak  total delay  source",
        "alice  etl        produce       1  1.0 kB         1   500 B/s  1.0 kB/s         0 ms  log",
        "alice  -          request       1       -         -    12.5 %    12.5 %            -  jmx",
        "alice  -          produce       2       -         -  1.0 kB/s  1.5 kB/s            -  jmx",
    ]


def test_decisions_and_violations_from_jmx_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(
        tmp_path,
        "decisions",
        decision(0, **{**UNKNOWN, "observed_throttle_ms": 162}),
        decision(1, **{**UNKNOWN, "observed_throttle_ms": None, "quota_type": "controller_mutation",
                       "limit_per_s": 5.0, "rate_per_s": 6.25, "quota_used_percent": 120.0}),
    )  # fmt: skip
    write_table(
        tmp_path, "violations", violation(0, throttled_ms=None, throttled_requests=None, source="jmx")
    )
    run("decisions", "--tables", str(tmp_path))
    mutation, produce = capsys.readouterr().out.splitlines()[2:4]
    assert " ".join(mutation.split()) == ("05:40:01 1 mutation user alice 5/s 6.25/s 120.0 % - / - - jmx")
    assert produce.split()[-8:] == ["25.0", "%", "-", "/", "162", "ms", "-", "jmx"]
    assert max(len(mutation), len(produce)) <= 100
    run("decisions", "--tables", str(tmp_path), "--throttled")
    assert capsys.readouterr().out.count(" jmx\n") == 1
    run("violations", "--tables", str(tmp_path))
    out = capsys.readouterr().out
    # From JMX alone there are no columns for throttles, which it does not tell.
    assert "123.5 %  jmx\n" in out
    assert "delay" not in out
    assert "jmx: the broker's own rate" in out


def test_doctor_does_not_take_samples_for_requests(tmp_path: Path) -> None:
    """With JMX alone there is nothing to count in the log's tables; every rate has to be judged."""
    for name in ("requests", "violations"):
        write_table(tmp_path, name)
    write_table(tmp_path, "usage", sampled_usage(0))
    write_table(tmp_path, "decisions", decision(0, **UNKNOWN))
    write_table(tmp_path, "quota_rules", source(2))
    rows = [sample(0), sample(1, byte_rate=None, queue_size=3), sample(2, kind="other", broker_id=None)]
    write_table(tmp_path, "jmx_samples", *rows)
    settings = Settings(tables=str(tmp_path), kafka=Kafka(topic="", jmx_topic="jmx"))
    found = [
        (check.status.value, check.what, check.evidence)
        for check in run_checks(settings, lambda: T0_MS + 2_000)
    ]
    assert found == [
        ("ok", "quota snapshot", "demo: quotas are known through 2026-11-21 05:40:02 UTC"),
        ("ok", "violations", "none"),
        (
            "ok",
            "JMX samples",
            "demo: 3 messages gave 2 samples, of brokers: 1; 1 hold no metric of a quota, 0 cannot be read",
        ),
        ("ok", "JMX judged", "demo: 1 decisions of 1 sampled rates"),
        ("ok", "JMX age", "demo: through 2026-11-21 05:40:00 UTC, 2.00 s behind"),
    ]
    write_table(
        tmp_path, "jmx_samples", sample(3, broker_id=2), sample(4, kind="unreadable", reason="no JSON")
    )
    late = {check.what: check for check in run_checks(settings, lambda: T0_MS + 3_600_000)}
    assert late["JMX judged"].status.value == "fail"
    assert late["JMX judged"].evidence == "demo: 1 decisions of 2 sampled rates"
    assert late["JMX samples"].evidence.endswith("1 cannot be read: 1 no JSON")


def test_a_table_of_two_queries_has_rows_of_one_or_the_other(tmp_path: Path) -> None:
    """A JMX topic that is named later must not be taken for a lost checkpoint."""
    write_table(tmp_path, "usage", usage(0))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    assert has_rows(settings, "usage", "log")
    assert not has_rows(settings, "usage", "jmx")
    write_table(tmp_path, "usage", sampled_usage(0))
    assert has_rows(settings, "usage", "jmx")


def test_agreement_compares_the_replay_with_jmx_and_never_jmx_with_itself(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(0), decision(0, **UNKNOWN, rate_per_s=240_000.0))
    write_table(tmp_path, "jmx_samples", sample(0, byte_rate=240_000.0))
    (row,) = by(Settings(tables=str(tmp_path)), "cluster").dicts()
    # 240 kB/s beside 250 kB/s of the replay: 4 % apart.
    assert (row["jmx_compared"], row["jmx_within_1_percent"], row["jmx_within_10_percent"]) == (1, 0, 1)
    assert (row["requests"], row["requests_judged"]) == (1, 1)


def test_a_new_lineage_goes_on_behind_the_rows_of_its_own_source(tmp_path: Path) -> None:
    """JMX is ahead of the log by its lateness: what the log has not told yet is not taken for told."""
    tables = tmp_path / "tables"
    write_table(tables, "requests", request(0))
    write_table(tables, "usage", usage(0), sampled_usage(30))
    write_table(
        tables, "decisions", decision(0), decision(30, **UNKNOWN), decision(30, **UNKNOWN, broker_id=2)
    )
    write_table(tables, "violations", violation(0))
    settings = Settings(
        cluster_id="demo",
        tables=str(tables),
        checkpoints=str(tmp_path / "checkpoints"),
        kafka=Kafka(topic="log"),
    )
    assert require_lineage(settings, ["log"], is_new=True) == ["log"]
    found = stored_lineage(settings)
    assert (found.measured_ms, found.decided_ms) == (T0_MS, {"1": T0_MS})
