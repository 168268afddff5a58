"""What makes agreement drop is put into captures of real brokers, and has to be named; nothing else may be."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.findings.agreement_causes import BrokerEvidence, Cause, likely_causes
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.reports.agreement.agreement_evidence import drops
from kquota_spark.reports.agreement.span import ALWAYS
from tests.support.chance import Chance
from tests.support.logs.captures import KRAFT41, ZK37, ZK39_PLAIN, Capture
from tests.support.programs.command_output import as_json, shown
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import write_table

LEVELS = Capture("zk39-levels", RateConfig(), 95)
OLDER = RateConfig(variant=RingVariant.UP_TO_3_7)


def causes(root: Path, capture: Capture, configured: RateConfig | None = None, **how: object) -> list[Cause]:
    settings = write_capture(root, capture, configured, **how)  # type: ignore[arg-type]
    return [cause.cause for drop in drops(settings, ALWAYS) for cause in drop.causes]


@pytest.mark.parametrize("capture", [LEVELS, ZK37, ZK39_PLAIN, KRAFT41], ids=lambda capture: capture.name)
def test_with_the_right_settings_there_is_no_cause(tmp_path: Path, capture: Capture) -> None:
    assert causes(tmp_path, capture) == []


@pytest.mark.parametrize(
    ("capture", "configured", "cause", "says"),
    [
        (ZK39_PLAIN, RateConfig(), Cause.WINDOW, "quota.window.num 5 and quota.window.size.seconds 2"),
        (KRAFT41, RateConfig(31, 1_000), Cause.WINDOW, "quota.window.num 11 and quota.window.size.seconds 1"),
        (ZK37, RateConfig(), Cause.VERSION, "the sample ring of 3.7 or older"),
        (KRAFT41, OLDER, Cause.VERSION, "the sample ring of 3.8 or later"),
    ],
)
def test_wrong_settings_are_named_with_the_right_ones(
    tmp_path: Path, capture: Capture, configured: RateConfig, cause: Cause, says: str
) -> None:
    [drop] = drops(write_capture(tmp_path, capture, configured), ALWAYS)
    assert [found.cause for found in drop.causes] == [cause]
    assert drop.causes[0].evidence.endswith(says)


def an_hour_later(lines: list[bytes]) -> list[bytes]:
    """The broker's clock, or the zone of its log, is an hour ahead."""
    return [b"%s%02d%s" % (line[:12], int(line[12:14]) + 1, line[14:]) for line in lines]


def test_a_clock_that_is_ahead_is_named(tmp_path: Path) -> None:
    # An hour ahead, all requests come after the edit of the run, which half of them did not.
    settings = write_capture(tmp_path, ZK37, lines=an_hour_later, reached_kafka_after_ms=5 - 3_600_000)
    [drop] = drops(settings, ALWAYS)
    assert [found.cause for found in drop.causes] == [Cause.CLOCK]
    assert "a clock that is 3,600.0 s ahead of the quotas'" in drop.causes[0].evidence


def without_every_fifth(lines: list[bytes]) -> list[bytes]:
    return [line for number, line in enumerate(lines) if number % 5]


def without_a_period(lines: list[bytes]) -> list[bytes]:
    return lines[: len(lines) // 3] + lines[len(lines) // 2 :]


@pytest.mark.parametrize("lines", [without_every_fifth, without_a_period])
def test_lines_that_are_missing_are_named(tmp_path: Path, lines: object) -> None:
    assert causes(tmp_path, KRAFT41, lines=lines) == [Cause.MISSING_LINES]


def doubled(changes: list[QuotaChange]) -> list[QuotaChange]:
    """The quotas as set, while a callback of the broker enforces half of each."""
    return [replace(change, value=None if change.value is None else 2 * change.value) for change in changes]


def test_a_callback_shows_in_jmx_by_buckets_that_nobody_judged(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, ZK39_PLAIN, quotas=doubled)
    [drop] = drops(settings, ALWAYS)
    assert [found.cause for found in drop.causes] == [Cause.UNKNOWN]
    start_ms = as_json("decisions", "--tables", settings.tables, "--limit", "1")["rows"][0]["second"]
    time_ms = round(datetime.fromisoformat(start_ms).timestamp() * 1_000)
    sample = {
        "cluster_id": "test", "event_date": date(2026, 11, 21), "kind": "sample", "broker_id": drop.broker_id,
        "quota_type": "produce", "bucket_user": "", "bucket_client_id": "", "byte_rate": 1.0,
    }  # fmt: skip
    untagged = [sample | {"sample_time_ms": time_ms + n} for n in range(20)]
    write_table(tmp_path, "jmx_samples", *untagged)
    [drop] = drops(settings, ALWAYS)
    assert [found.cause for found in drop.causes] == [Cause.CALLBACK]
    assert drop.causes[0].evidence == "0 of 20 byte rates in JMX belong to a bucket that was judged"
    write_table(
        tmp_path, "jmx_samples", sample | {"sample_time_ms": time_ms, "bucket_tags": '{"group": "pay"}'}
    )
    [drop] = drops(settings, ALWAYS)
    assert drop.causes[0].evidence.endswith("was judged, 1 have tags of a quota callback")


def test_the_broker_may_say_itself_that_it_has_a_callback(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, ZK39_PLAIN, quotas=doubled)
    described = {"cluster_id": "test", "broker_id": 7, "quota_callback_class": "org.example.Tenants"}
    write_table(tmp_path, "broker_configs", described)
    [drop] = drops(settings, ALWAYS)
    assert [found.cause for found in drop.causes] == [Cause.CALLBACK]
    assert "client.quota.callback.class org.example.Tenants" in drop.causes[0].evidence


def without_request_quotas(changes: list[QuotaChange]) -> list[QuotaChange]:
    return [change for change in changes if change.key is not QuotaKey.REQUEST_PERCENTAGE]


def test_a_request_quota_that_the_audit_does_not_know_throttles_other_requests_too(tmp_path: Path) -> None:
    assert set(causes(tmp_path, LEVELS, quotas=without_request_quotas)) == {Cause.REQUEST_QUOTA}


def logged_late(lines: list[bytes]) -> list[bytes]:
    """A broker with busy processors: a third of its lines 30 ms late on average, in the order as written."""
    chance = Chance(7)
    return [later(line, chance.expovariate(1 / 30)) if chance.random() < 0.3 else line for line in lines]


def later(line: bytes, by_ms: float) -> bytes:
    time = datetime.fromisoformat(line[1:24].decode()) + timedelta(milliseconds=by_ms)
    return b"[%s%s" % (time.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3].encode(), line[24:])


@pytest.mark.parametrize("capture", [LEVELS, ZK37, ZK39_PLAIN, KRAFT41], ids=lambda capture: capture.name)
def test_a_broker_that_logs_late_is_named(tmp_path: Path, capture: Capture) -> None:
    assert set(causes(tmp_path, capture, lines=logged_late)) == {Cause.LOG_TIMES}


def test_other_quotas_are_no_late_log(tmp_path: Path) -> None:
    assert causes(tmp_path, ZK37, quotas=doubled) == [Cause.UNKNOWN]


WRONG = BrokerEvidence(
    requests=10_000, judged=10_000, false_positive=150, false_negative=150, duration_ms=3_600_000
)


def test_the_advice_has_the_command_of_the_cluster() -> None:
    (found,) = likely_causes(WRONG, RateConfig(), None, "kquota resolve --config conf/kquota.yaml")
    assert found.cause is Cause.UNKNOWN
    assert found.advice == (
        "compare the quotas that the brokers have (kquota resolve --config conf/kquota.yaml) with those of the audit"
    )


def of(**changed: Any) -> list[Cause]:
    return [found.cause for found in likely_causes(replace(WRONG, **changed), RateConfig(), None)]


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"jmx_samples": 20}, Cause.CALLBACK),
        ({"jmx_samples": 19}, Cause.UNKNOWN),
        ({"jmx_samples": 20, "judged_in_jmx": 1}, Cause.UNKNOWN),
        ({"jmx_samples": 9, "judged_in_jmx": 8, "unknown_tags": 1}, Cause.CALLBACK),
        ({"false_positive": 50, "other_throttled": 1}, Cause.REQUEST_QUOTA),
        ({"other_throttled": 1}, Cause.UNKNOWN),  # as many false alarms: no unknown quota makes these
        ({"excluded": 5_001}, Cause.REQUEST_QUOTA),
        ({"excluded": 5_000}, Cause.UNKNOWN),
        ({"wrong_rules_behind": 151}, Cause.RULES_BEHIND),
        ({"wrong_rules_behind": 150}, Cause.UNKNOWN),
        ({"wrong_at_start": 240}, Cause.COLD_START),  # 80 % of 300
        ({"wrong_at_start": 239}, Cause.UNKNOWN),
        # Two horizons of 12 s are more than a quarter of 95 s: then it tells nothing.
        ({"wrong_at_start": 300, "duration_ms": 95_000}, Cause.UNKNOWN),
        ({"false_positive": 50, "late": 51}, Cause.LATE_LINES),
        ({"false_positive": 50, "late": 50}, Cause.UNKNOWN),
        ({"false_positive": 50, "lines_expected": 1_000, "lines_missing": 6}, Cause.MISSING_LINES),
        ({"false_positive": 50, "lines_expected": 1_000, "lines_missing": 5}, Cause.UNKNOWN),
        ({"false_positive": 51, "lines_expected": 1_000, "lines_missing": 6}, Cause.UNKNOWN),
        ({"false_positive": 50, "offsets_missing": 1}, Cause.MISSING_LINES),
        # 80 of 100 found, 67 of 80 (83.75 %) exact; 68 are 85 %
        ({"throttled": 100, "throttles_found": 80, "throttles_exact": 67}, Cause.LOG_TIMES),
        ({"throttled": 100, "throttles_found": 80, "throttles_exact": 68}, Cause.UNKNOWN),
        ({"throttled": 100, "throttles_found": 79, "throttles_exact": 0}, Cause.UNKNOWN),
        ({"throttled": 20, "throttles_found": 20, "throttles_exact": 16}, Cause.LOG_TIMES),
        ({"throttled": 19, "throttles_found": 19, "throttles_exact": 0}, Cause.UNKNOWN),
        # What explains more comes first.
        ({"throttled": 100, "throttles_found": 80, "excluded": 5_001}, Cause.REQUEST_QUOTA),
    ],
)
def test_a_cause_has_evidence_beyond_its_threshold(changed: dict[str, int], cause: Cause) -> None:
    assert of(**changed) == [cause]


@pytest.mark.parametrize(
    "wrong", [{"false_positive": 0, "false_negative": 19, "judged": 100}, {"judged": 30_000}]
)
def test_without_a_drop_there_is_no_cause(wrong: dict[str, int]) -> None:
    # 19 wrong ones may be one sample that opened late; 300 of 30,000 are 1 %.
    assert of(**wrong, excluded=10_000) == []


def test_the_command_names_the_cause_below_its_table_and_in_json(tmp_path: Path) -> None:
    write_capture(tmp_path, ZK39_PLAIN, RateConfig())
    config = tmp_path / "kquota.yaml"
    config.write_text(f"tables: {tmp_path}\ncluster_id: test\n", encoding="utf-8")
    [cause] = as_json("agreement", "--config", str(config))["causes"]
    assert (cause["broker_id"], cause["cause"]) == (7, "window settings")
    out = shown("agreement", "--config", str(config), "--by", "type")
    assert "broker 7 of test, likely cause: window settings: of " in out


def test_jmx_byte_rates_are_compared_with_the_decision_of_their_second(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, ZK39_PLAIN)
    row = as_json("decisions", "--tables", settings.tables, "--type", "produce", "--limit", "1")["rows"][0]
    time_ms = round(datetime.fromisoformat(row["second"]).timestamp() * 1_000)
    sample = {
        "cluster_id": "test", "event_date": date(2026, 11, 21), "kind": "sample", "broker_id": 7,
        "quota_type": "produce", "bucket_user": row["bucket_user"], "bucket_client_id": row["bucket_client_id"],
    }  # fmt: skip
    rate = row["rate_per_s"]
    write_table(
        tmp_path, "jmx_samples",
        sample | {"sample_time_ms": time_ms + 100, "byte_rate": rate * 3},  # an earlier one of the second
        sample | {"sample_time_ms": time_ms + 900, "byte_rate": rate * 1.005},
        sample | {"sample_time_ms": time_ms - 500_000, "byte_rate": rate},  # no decision of that second
    )  # fmt: skip
    by_type = as_json("agreement", "--tables", settings.tables, "--by", "type")["rows"]
    [found] = [row for row in by_type if row["quota_type"] == "produce"]
    counts = [found[name] for name in ("jmx_compared", "jmx_within_1_percent", "jmx_within_10_percent")]
    assert counts == [1, 1, 1]
