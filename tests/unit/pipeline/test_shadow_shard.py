"""Shadow buckets one by one: rows, warm-up, near seconds, what a version and a move between buckets change."""

from __future__ import annotations

from typing import Any

from kquota_spark.model.loops.shadow_bucket import ShadowLimit, ShadowPart, ShadowReplay
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.pipeline.shadow.rules import ShadowPin
from tests.support.pipeline.shadowed import Job, Row, Values, book_of, known, run_batches

T0 = 1_800_000_000_000
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, PAIR = Entity("alice", None), Entity("alice", "etl")


def _row(second: int, amount: int, client_id: str = "etl", at_ms: int = 0) -> Row:
    """A produce of alice."""
    time_ms = T0 + second * 1_000 + at_ms
    point = Point(time_ms, time_ms, 1, second, amount, 0, int(PointKind.PRODUCE))
    return {
        "cluster_id": "demo", "broker_id": 1, "quota_type": "produce", "principal_type": "User", "user": "alice",
        "client_id": client_id, "second": T0 + second * 1_000, "points": [point._asdict()],
    }  # fmt: skip


def _found(job: Job, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of the shadow by second and bucket: second since `T0`, client-id tag, and some columns."""
    rows = sorted(job.shadow, key=lambda row: (row["second"], row["bucket_client_id"]))
    return [
        (
            round(row["second"].timestamp()) - T0 // 1_000,
            row["bucket_client_id"],
            *(row[name] for name in columns),
        )
        for row in rows
    ]


def _run(rows: list[Row], enforced: Values, shadow: Values, seconds: int = 1) -> Job:
    return run_batches(rows, known(book_of(enforced), shadow), seconds)


def test_a_lower_shadow_limit_throttles_in_the_seconds_that_exceed_it() -> None:
    """2 MB at second 0 are 200 kB/s over 10 s: below 250 kB/s in force, twice the shadow's 100 kB/s."""
    job = _run(
        [_row(0, 2_000_000), _row(20, 1)], {ALICE: {PRODUCE: 250_000.0}}, {ALICE: {PRODUCE: 100_000.0}}
    )
    [row] = job.shadow
    assert row["limit_per_s"] == 100_000.0
    assert row["enforced_limit_per_s"] == 250_000.0
    assert row["rate_per_s"] == 200_000.0
    # (200,000 - 100,000) / 100,000 * 10 s
    assert (row["throttle_ms"], row["throttled_requests"], row["total_throttle_ms"]) == (10_000, 1, 10_000)
    assert (row["enforced_throttled_requests"], row["enforced_total_throttle_ms"]) == (0, 0)
    assert (row["shadow"], row["shadow_version"], row["rule"], row["level"]) == (
        "lower",
        "v1",
        "users/alice",
        3,
    )
    assert (row["is_near"], row["is_warm"], row["requests"]) == (False, True, 1)


def test_a_freed_second_has_a_row_with_the_throttle_in_force() -> None:
    job = _run([_row(0, 2_000_000)], {ALICE: {PRODUCE: 100_000.0}}, {ALICE: {PRODUCE: 250_000.0}})
    assert _found(job, "total_throttle_ms", "enforced_total_throttle_ms", "limit_per_s") == [
        (0, "", 0, 10_000, 250_000.0)
    ]


def test_a_second_within_2_ms_of_the_shadow_limit_is_near() -> None:
    """Over 10 s the limit allows 1,000,000 bytes, and 2 ms of it are 200 bytes."""
    enforced, shadow = {ALICE: {PRODUCE: 900_000.0}}, {ALICE: {PRODUCE: 100_000.0}}
    for amount, near in ((999_799, []), (999_800, [(0, "", 0, True)]), (1_000_200, [(0, "", 2, True)])):
        job = _run([_row(0, amount)], enforced, shadow)
        assert _found(job, "throttle_ms", "is_near") == near
    assert _found(_run([_row(0, 1_000_210)], enforced, shadow), "throttle_ms", "is_near") == [
        (0, "", 2, False)
    ]


def test_a_client_that_moves_to_another_bucket_is_freed_there_and_counted_here() -> None:
    """The shadow takes etl out of alice's bucket. Without its 1.5 MB, her own 0.7 MB are below 100 kB/s."""
    rows = [_row(0, 1_500_000), _row(1, 700_000, "app"), _row(2, 100_000)]
    enforced = {ALICE: {PRODUCE: 100_000.0}}
    job = _run(rows, enforced, {ALICE: {PRODUCE: 100_000.0}, PAIR: {PRODUCE: 200_000.0}})
    columns = "requests", "limit_per_s", "total_throttle_ms", "enforced_total_throttle_ms"
    # In force: 1.5, 2.2 and 2.3 MB over 10 s, in a bucket of 100 kB/s. The bucket etl has 1.6 MB of 2 MB.
    assert _found(job, *columns) == [
        (0, "", 0, None, 0, 5_000),
        (1, "", 1, 100_000.0, 0, 12_000),
        (2, "", 0, None, 0, 13_000),
    ]


def test_a_version_warms_up_for_as_long_as_a_ring_remembers() -> None:
    """A job has judged other quotas before; this version begins at second 3. Its ring remembers 12 s."""
    enforced, values = book_of({ALICE: {PRODUCE: 1e9}}), {ALICE: {PRODUCE: 1_000.0}}
    rows = [_row(second, 100_000) for second in range(18)]
    job = run_batches(rows[:3], known(enforced, {}), 1)
    knows = known(enforced, values, ShadowPin("lower", "v2", T0 + 3_000))
    run_batches(rows[3:], knows, 1, job)
    warm = [(second, is_warm) for second, _, is_warm in _found(job, "is_warm")]
    assert warm == [(second, second >= 15) for second in range(3, 18)]
    # The ring is that of the enforced bucket: at second 3 it has four times 100 kB over 10 s.
    assert [row["rate_per_s"] for row in job.shadow][:1] == [40_000.0]


def test_another_version_forgets_the_rings_of_the_one_before() -> None:
    """Under v1 etl has a bucket of its own, with 1 MB. v2 makes the same bucket, which begins empty."""
    enforced = book_of({ALICE: {PRODUCE: 1e9}})
    values = {ALICE: {PRODUCE: 1e9}, PAIR: {PRODUCE: 90_000.0}}
    job = run_batches([_row(0, 1_000_000)], known(enforced, values), 1)
    again = run_batches([_row(1, 10)], known(enforced, values, ShadowPin("lower", "v2", T0 + 1_000)), 1, job)
    assert _found(again, "rate_per_s", "shadow_version") == [(0, "etl", 100_000.0, "v1")]


def test_the_state_of_a_job_without_shadow_is_that_of_the_release_before() -> None:
    rows, enforced = [_row(0, 5), _row(1, 5, "app")], {ALICE: {PRODUCE: 100.0}}
    without = run_batches(rows, known(book_of(enforced), None), 1)
    same = run_batches(rows, known(book_of(enforced), enforced), 1)
    assert without.state == same.state
    parted = run_batches(rows, known(book_of(enforced), {**enforced, PAIR: {PRODUCE: 50.0}}), 1)
    assert parted.state != without.state
    # The shadow is taken out of the settings: its rings go with the next request of each shard.
    run_batches([_row(2, 5), _row(2, 5, "app")], known(book_of(enforced), None), 1, parted)
    run_batches([_row(2, 5), _row(2, 5, "app")], known(book_of(enforced), None), 1, without)
    assert parted.state == without.state


def test_rings_are_forgotten_with_the_buckets() -> None:
    shadow = {PAIR: {PRODUCE: 50.0}, ALICE: {PRODUCE: 100.0}}
    job = _run([_row(0, 5), _row(20, 5, "app"), _row(40, 5, "app")], {ALICE: {PRODUCE: 100.0}}, shadow)
    fresh = _run([_row(40, 5, "app")], {ALICE: {PRODUCE: 100.0}}, shadow)
    shard = {key: value for key, value in job.state.items() if key in fresh.state}
    assert shard == fresh.state


def _second(limit: ShadowLimit, *points: Point) -> tuple[int, int, int]:
    found = ShadowReplay(QuotaType.FETCH, RateConfig()).judge(T0, [ShadowPart(points, limit)])
    return found.throttled_requests, found.total_throttle_ms, found.unknown_requests


def test_a_throttled_fetch_has_a_verdict_only_under_the_limit_that_throttled_it() -> None:
    empty = Point(T0, T0, 1, 1, 0, 700, int(PointKind.THROTTLED_FETCH))
    same = ShadowLimit(
        500.0, 3, "users/alice", has_request_quota=False, is_enforced=True, inferred_limit=500.0
    )
    assert _second(same, empty) == (1, 700, 0)
    assert _second(same._replace(limit_per_s=400.0, is_enforced=False), empty) == (0, 0, 1)
    assert _second(same._replace(limit_per_s=None, is_enforced=False), empty) == (0, 0, 0)


def test_a_client_of_no_named_user_keeps_its_quota_if_only_named_ones_differ() -> None:
    default = Entity(DEFAULT, None)
    enforced = book_of({default: {PRODUCE: 10.0}, ALICE: {FETCH: 5.0}})
    found = known(enforced, {default: {PRODUCE: 10.0}, ALICE: {FETCH: 6.0}, PAIR: {PRODUCE: 1.0}}).shadow
    assert found is not None
    assert (found.differing.is_everyone, found.differing.users) == (False, frozenset({"alice"}))
    everyone = known(enforced, {default: {PRODUCE: 11.0}, ALICE: {FETCH: 5.0}}).shadow
    assert everyone is not None
    assert everyone.differing.is_everyone
