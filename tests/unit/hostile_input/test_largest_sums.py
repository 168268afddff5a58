"""Sums of the largest amounts that a line can carry: exact, and far from 2^63 in whatever a broker can log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from kquota_spark.model.govern.govern import RequestCoverage
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay
from kquota_spark.pipeline.charges import Charges, charges_of
from kquota_spark.pipeline.ingest import request_batch
from kquota_spark.pipeline.measure import TILE_POINTS, client_seconds, usage_batch
from tests.support.logs.log_lines import PRODUCE_V9, T0_MS, changed
from tests.support.logs.replayed_captures import found
from tests.support.pipeline.packed import packed_bytes

LINES = 10_000
MOST_BYTES = 2**31 - 1
# 11 + "checkout-svc" + 6 + 1 + 1 + 1, "orders" + 1 + 2, 5 + 5: what a produce v9 has beside its records.
LARGEST_RECORDS = MOST_BYTES - 51
MOST_THREAD_US = 10**12
"""Eleven days and a half: more than that of one request is taken for this."""
BIGINT = 2**63
# The least that the parser takes for a produce: nothing in it can be left out.
SHORTEST = (
    b'[2024-11-20 12:00:00,123]Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":0,'
    b'"requestApiVersion":0,"correlationId":1,"clientId":""},"request":{"acks":1,"topicData":[{"name":"",'
    b'"partitionData":[{"recordsSizeInBytes":2147483000}]}]},"response":"","connection":"","localTimeMs":0,'
    b'"remoteTimeMs":0,"throttleTimeMs":0,"responseQueueTimeMs":0,"sendTimeMs":0,"principal":":"}'
)
PARSER = RequestLogParser()


def largest(number: int) -> bytes:
    return changed(
        PRODUCE_V9, ("16384", str(LARGEST_RECORDS)), ('"correlationId":4711', f'"correlationId":{number}')
    )


def point(number: int, amount: int) -> Point:
    return Point(T0_MS + number % 1_000, T0_MS + number % 1_000, 7, number, amount, 0, PointKind.PRODUCE)


def governed(points: list[Point]) -> GovernedSecond:
    return GovernedSecond(T0_MS, "alice", "etl", Governing(1_000.0), 7, "clients/etl", 1, points)


def test_the_largest_request_has_the_largest_size_of_the_wire() -> None:
    assert PARSER.parse(largest(1)).charged_bytes == MOST_BYTES
    with pytest.raises(Unreadable, match=r"a size is beyond 2\^31"):
        PARSER.parse(changed(largest(1), (str(LARGEST_RECORDS), str(LARGEST_RECORDS + 1))))


def test_ten_thousand_of_the_largest_requests_in_one_second_have_their_exact_sum(tmp_path: Path) -> None:
    log, quotas = tmp_path / "broker-1.log", tmp_path / "quotas.yaml"
    log.write_bytes(b"".join(largest(number) + b"\n" for number in range(LINES)))
    quotas.write_text("- {user: checkout, client_id: null, type: producer_byte_rate, value: 1000}\n")
    answer = found(["replay", "--quotas", str(quotas), "--by", "bucket", str(log)])
    assert (answer["lines"], answer["unreadable"], answer["decisions"]) == (LINES, 0, 1)
    [bucket] = answer["buckets"]
    assert (bucket["requests"], bucket["amount"]) == (LINES, 21_474_836_470_000)


def test_the_rows_of_the_job_have_the_same_sum() -> None:
    charges = Charges(RequestCoverage(), 1)
    charges.add(request_batch(1, [PARSER.parse(largest(number)) for number in range(LINES)]))
    [charged] = charges.batches()
    second: dict[str, Any] = {
        "place": charged["place"],
        "second": pa.array([T0_MS * 1_000], pa.timestamp("us", tz="UTC")),
        "charges": pa.array([charged["charges"].to_pylist()], pa.list_(pa.binary())),
    }
    [of_clients] = client_seconds(pa.RecordBatch.from_pydict(second))
    usage = usage_batch(of_clients, "demo")
    assert usage["requests"].to_pylist() == [LINES]
    assert usage["amount"].to_pylist() == [21_474_836_470_000]


def test_the_model_adds_up_beyond_64_bits() -> None:
    amount, expected = 2**50, 11_258_999_068_426_240_000
    assert expected > BIGINT
    points = [point(number, amount) for number in range(LINES)]
    [decision] = judge_bucket(BucketReplay(RateConfig()), [governed(points)])
    assert (decision.amount, decision.requests) == (expected, LINES)
    totals, _ = SampleRing(RateConfig()).record_all([amount] * LINES, [T0_MS] * LINES)
    assert totals[-1] == expected
    # The last request sees the whole sum: 11 windows are measured as at least 10 s.
    assert decision.rate_per_s == pytest.approx(expected / 10.0, rel=0.1)


def test_a_row_of_usage_cannot_overflow() -> None:
    points = [point(number, MOST_THREAD_US) for number in range(2 * TILE_POINTS)]
    second: dict[str, Any] = {
        "broker_id": pa.array([1], pa.int32()),
        **{name: ["x"] for name in ("quota_type", "principal_type", "user", "client_id")},
        "second": pa.array([T0_MS * 1_000], pa.timestamp("us", tz="UTC")),
        "points": pa.array([[packed_bytes(points)]], pa.list_(pa.binary())),
    }
    usage = usage_batch(pa.RecordBatch.from_pydict(second), "demo")
    # A row is a tile of 10,000 requests, however many the second has.
    assert usage["requests"].to_pylist() == [10_000, 10_000]
    assert usage["amount"].to_pylist() == [10**16, 10**16]
    assert usage["rate_per_s"].to_pylist() == [1e16, 1e16]
    assert max(MOST_THREAD_US, MOST_BYTES) * TILE_POINTS * 900 < BIGINT


def test_no_request_adds_more_thread_time_than_the_bound() -> None:
    endless = PARSER.parse(changed(PRODUCE_V9, ('"localTimeMs":1.204', '"localTimeMs":1e300')))
    charges = charges_of(request_batch(1, [endless]), RequestCoverage(is_everyone=True))
    amounts = dict(zip(charges["quota_type"].to_pylist(), charges["amount"].to_pylist(), strict=True))
    assert amounts == {QuotaType.PRODUCE.value: 16_433, QuotaType.REQUEST.value: MOST_THREAD_US}


def test_a_second_of_a_bucket_overflows_at_no_rate_that_a_broker_can_log() -> None:
    # 10 of the header v1, 2 + 4 + 4, 2 + 4 of the topic, 8 of the partition.
    assert PARSER.parse(SHORTEST).charged_bytes == 2_147_483_000 + 34
    # Bytes: a row of decisions is one second of one bucket of one broker.
    lines = BIGINT // MOST_BYTES + 1
    assert lines == 4_294_967_299
    log_bytes_per_s = lines * (len(SHORTEST) + 1)
    assert log_bytes_per_s > 10**12  # a terabyte of request log in one second
    # Thread time: each of these requests had a handler thread for 11 days, and all ended in the same second.
    assert BIGINT // MOST_THREAD_US + 1 == 9_223_373
    assert 9_223_373 * (len(SHORTEST) + 1) > 3 * 10**9  # bytes of log in that second
