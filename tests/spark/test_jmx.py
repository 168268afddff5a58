"""JMX messages to jmx_samples, usage, decisions and violations: literal messages in, literal rows out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.audit.queries import from_jmx
from kquota_spark.audit.task_reports import TaskReports
from kquota_spark.config.settings import Collect, CollectJmx, Settings
from kquota_spark.model.quotas.entities import DEFAULT, Default, IpEntity
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from tests.support.logs.jmx_messages import TIME_MS, jolokia, telegraf
from tests.support.spark.queries import (
    MESSAGE,
    change,
    forget_last_commit,
    only,
    rows_of,
    run,
    run_jmx,
    start_jmx,
    write_rules,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = [
    telegraf("kafka_quota_produce", {"byte-rate": 250_000.5, "throttle-time": 162.4}, user="alice"),
    telegraf("kafka_quota_fetch", {"byte-rate": 300_000}, client_id="etl"),
    telegraf("kafka_quota_request", {"request-time": 20.0}, user="alice"),
    # Nobody's bucket: only the length of the queue, so there is no rate to judge.
    telegraf("kafka_quota_produce", {"queue-size": 3}),
    telegraf("cpu", {"usage_idle": 97.0}),
    jolokia(
        "kafka.server:type=ControllerMutation,*",
        {
            "kafka.server:type=ControllerMutation,user=ctl": {"tokens": -11.0, "mutation-rate": 6.5},
            "kafka.server:type=ControllerMutation,user=bot": {"tokens": 44.0, "mutation-rate": 0.5},
        },
    ),
    jolokia(
        "kafka.server:type=socket-server-metrics,ip=*",
        {"kafka.server:type=socket-server-metrics,ip=10.0.0.1": {"connection-accept-rate": 5.1}},
    ),
    b"not json",
]


def audited(spark: SparkSession, settings: Settings, *messages: bytes) -> None:
    """Let the query work through these messages."""
    collect = Collect(jmx=CollectJmx(brokers={"2": "kafka2:8778"}))
    run_jmx(spark, replace(settings, collect=collect), *messages, at_ms=TIME_MS + 60_000)


def rules(settings: Settings) -> None:
    write_rules(
        settings,
        change("alice", None, 200_000.0),
        change("alice", None, 25.0, key=QuotaKey.REQUEST_PERCENTAGE),
        change(None, "etl", 400_000.0, key=QuotaKey.CONSUMER_BYTE_RATE),
        change("ctl", None, 5.0, key=QuotaKey.CONTROLLER_MUTATION_RATE),
        change("bot", None, 5.0, key=QuotaKey.CONTROLLER_MUTATION_RATE),
    )


def test_every_message_is_a_row_or_more(spark: SparkSession, settings: Settings) -> None:
    rules(settings)
    audited(spark, settings, *MESSAGES)
    found = rows_of(settings, "jmx_samples")
    assert only(found, "kafka_offset", "kind", "mbean_type", "bucket_user", "bucket_client_id", "ip") == [
        (0, "sample", "Produce", "alice", "", None),
        (1, "sample", "Fetch", "", "etl", None),
        (2, "sample", "Request", "alice", "", None),
        (3, "sample", "Produce", "", "", None),
        (4, "other", None, None, None, None),
        (5, "sample", "ControllerMutation", "bot", "", None),
        (5, "sample", "ControllerMutation", "ctl", "", None),
        (6, "sample", "socket-server-metrics", "", "", "10.0.0.1"),
        (7, "unreadable", None, None, None, None),
    ]
    (unreadable,) = (row for row in found if row["kind"] == "unreadable")
    assert unreadable["raw_text"] == "not json"
    assert unreadable["reason"].startswith("no message of a collector: JSON is malformed")


def test_samples_become_usage_and_decisions_of_the_brokers_own_rate(
    spark: SparkSession, settings: Settings
) -> None:
    rules(settings)
    audited(spark, settings, *MESSAGES)
    assert only(rows_of(settings, "usage"), "quota_type", "user", "client_id", "rate_per_s", "amount") == [
        ("controller_mutation", "bot", "", 0.5, None),
        ("controller_mutation", "ctl", "", 6.5, None),
        ("fetch", "", "etl", 300_000.0, None),
        ("produce", "alice", "", 250_000.5, None),
        ("request", "alice", "", 20.0, None),
    ]
    decisions = rows_of(settings, "decisions")
    shown = ("quota_type", "bucket_user", "bucket_client_id", "level", "limit_per_s", "quota_used_percent")
    # A token bucket of 5/s holds 11 windows of a second: 55. Of these 11 are left, or 66 are taken.
    assert only(decisions, *shown) == [
        ("connection", "", "", None, None, None),
        ("controller_mutation", "bot", "", 3, 5.0, 20.0),
        ("controller_mutation", "ctl", "", 3, 5.0, 120.0),
        ("fetch", "", "etl", 7, 400_000.0, 75.0),
        ("produce", "alice", "", 3, 200_000.0, 125.00025),
        ("request", "alice", "", 3, 25.0, 80.0),
    ]
    (alice,) = (row for row in decisions if row["quota_type"] == "produce")
    assert alice["second"] == TIME_MS
    assert (alice["rule"], alice["observed_throttle_ms"], alice["requests"]) == ("users/alice", 162, None)
    assert (alice["source"], alice["is_certain"], alice["is_rules_behind"]) == ("jmx", False, False)
    assert (alice["users"], alice["client_ids"]) == (["alice"], [])
    (connection,) = (row for row in decisions if row["quota_type"] == "connection")
    assert connection["bucket_tags"] == '{"ip":"10.0.0.1"}'


def test_connections_are_limited_by_the_quota_of_their_address_or_the_defaults(
    spark: SparkSession, settings: Settings
) -> None:
    edit_ms = TIME_MS + 10_000
    write_rules(
        settings,
        of_ip("10.0.0.1", 4.0),
        of_ip(DEFAULT, 10.0, edit_ms),
        # Quotas of clients have nothing to do with it.
        change(None, DEFAULT, 1.0),
    )
    rates = {"10.0.0.1": 5.0, "10.0.0.2": 5.0}
    beans = {
        f"kafka.server:type=socket-server-metrics,ip={ip}": {"connection-accept-rate": rate}
        for ip, rate in rates.items()
    }
    message = "kafka.server:type=socket-server-metrics,ip=*", beans
    audited(spark, settings, jolokia(*message), jolokia(*message, time_ms=edit_ms))
    shown = ("second", "bucket_tags", "limit_per_s", "rule", "quota_used_percent")
    assert only(rows_of(settings, "decisions"), *shown) == [
        (TIME_MS, '{"ip":"10.0.0.1"}', 4.0, "ips/10.0.0.1", 125.0),  # 5 of 4
        (TIME_MS, '{"ip":"10.0.0.2"}', None, None, None),
        (edit_ms, '{"ip":"10.0.0.1"}', 4.0, "ips/10.0.0.1", 125.0),
        (edit_ms, '{"ip":"10.0.0.2"}', 10.0, "ips/<default>", 50.0),  # 5 of 10
    ]


def of_ip(ip: str | Default, value: float, at_ms: int = 0) -> QuotaChange:
    return QuotaChange(IpEntity(ip), IpQuotaKey.CONNECTION_CREATION_RATE, value, None, at_ms, at_ms)


def test_the_limit_is_the_one_of_the_samples_time(spark: SparkSession, settings: Settings) -> None:
    edit_ms = TIME_MS + 10_000
    write_rules(settings, change("alice", None, 200_000.0), change("alice", None, 100_000.0, edit_ms))
    times_ms = (TIME_MS, edit_ms - 1, edit_ms, edit_ms + 5_000)
    audited(
        spark,
        settings,
        *(
            jolokia(
                "kafka.server:type=Produce,*",
                {"kafka.server:type=Produce,user=alice": {"byte-rate": 150_000.0, "throttle-time": None}},
                time_ms,
            )
            for time_ms in times_ms
        ),
    )
    found = only(rows_of(settings, "decisions"), "second", "limit_per_s", "observed_throttle_ms")
    assert found == [
        (TIME_MS, 200_000.0, None),
        (edit_ms - 1_000, 200_000.0, None),
        (edit_ms, 100_000.0, None),
        (edit_ms + 5_000, 100_000.0, None),
    ]


def test_python_reads_messages_and_finds_limits_and_spark_does_the_rest(
    spark: SparkSession, settings: Settings
) -> None:
    nothing = Path(settings.tables) / "messages"
    nothing.mkdir()
    source = spark.readStream.schema(MESSAGE).parquet(str(nothing))
    plan = (
        from_jmx(source, settings, TaskReports(spark.sparkContext))
        ._jdf.queryExecution()
        .analyzed()
        .toString()
    )
    # The third writes what was decided.
    assert re.findall(r"\w*(?:Python|Pandas|InArrow)\w*", plan) == ["MapInArrow"] * 3


def test_a_micro_batch_that_runs_again_is_there_once(spark: SparkSession, settings: Settings) -> None:
    rules(settings)
    audited(spark, settings, *MESSAGES)
    written = {name: rows_of(settings, name) for name in ("jmx_samples", "usage", "decisions", "violations")}
    assert [len(rows) for rows in written.values()] == [9, 5, 6, 2]
    forget_last_commit(settings, "jmx")
    run(start_jmx(spark, settings))
    assert {name: rows_of(settings, name) for name in written} == written


def test_a_sample_of_the_future_is_kept_with_its_reason_and_not_judged(
    spark: SparkSession, settings: Settings
) -> None:
    rules(settings)
    year_2099_s = 4_070_908_800
    ahead = telegraf("kafka_quota_produce", {"byte-rate": 1.0}, time=year_2099_s, user="alice")
    audited(spark, settings, MESSAGES[0], ahead)
    kept = only(rows_of(settings, "jmx_samples"), "kafka_offset", "kind", "sample_time_ms", "reason")
    assert kept == [
        (0, "sample", TIME_MS, None),
        (
            1,
            "unreadable",
            None,
            "sample time ahead of the message or of this machine: the collector's clock is wrong",
        ),
    ]
    assert only(rows_of(settings, "decisions"), "second") == [(TIME_MS,)]
