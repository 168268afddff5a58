"""Episodes of one bucket: what is joined, what their sums are, what they are called, when they end."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.replay.episodes import BucketId, Clocks, Episode, Violation, folded, joined

ALICE = BucketId("demo", 1, "produce", "alice", "", None)
GAP_MS = 3_000


def over(start_ms: int, last_ms: int | None = None, **changed: Any) -> Episode:
    piece = Episode(
        start_ms, start_ms if last_ms is None else last_ms, 3, "users/alice", 1e6, 2e6, 200.0, 1, 70, 2, "log",
        ["alice"], ["etl"],
    )  # fmt: skip
    return piece._replace(**changed)


@pytest.mark.parametrize(("pause_ms", "episodes"), [(3_000, 1), (4_000, 2)])
def test_a_gap_as_long_as_agreed_joins(pause_ms: int, episodes: int) -> None:
    assert len(joined([over(0, 5_000), over(5_000 + pause_ms)], GAP_MS)) == episodes


def test_a_piece_within_another_does_not_shorten_it() -> None:
    # An open episode of 10 s, a second in it that another source tells, and one just within the gap of its end.
    [found] = joined([over(0, 10_000, violated_seconds=11), over(4_000), over(13_000)], GAP_MS)
    assert (found.start_ms, found.last_ms, found.violated_seconds) == (0, 13_000, 13)


def test_rule_and_level_are_those_of_the_start_source_that_of_the_end() -> None:
    first = over(0, level=2, rule="first", limit_per_s=5.0, peak_rate_per_s=9.0, peak_used_percent=180.0)
    last = over(1_000, level=6, rule="last", limit_per_s=4.0, peak_rate_per_s=8.0, peak_used_percent=200.0)
    [found] = joined([last._replace(source="jmx", users=["bob"]), first], GAP_MS)
    assert found == first._replace(
        last_ms=1_000, limit_per_s=4.0, peak_used_percent=200.0, violated_seconds=2, throttled_ms=140,
        throttled_requests=4, source="jmx", users=["alice", "bob"],
    )  # fmt: skip


def test_harm_by_replay_and_by_the_broker_is_summed_apart() -> None:
    first = over(0, longest_throttle_ms=70, observed_throttled_ms=90, observed_throttled_requests=3)
    first = first._replace(observed_longest_throttle_ms=50)
    second = over(1_000, longest_throttle_ms=20, observed_throttled_ms=12_372, observed_throttled_requests=1)
    second = second._replace(throttled_ms=0, throttled_requests=0, observed_longest_throttle_ms=12_372)
    [found] = joined([second, first, over(2_000)], GAP_MS)  # the last one was written by an older release
    assert (found.throttled_ms, found.throttled_requests, found.longest_throttle_ms) == (140, 4, 70)
    assert (found.observed_throttled_ms, found.observed_throttled_requests) == (12_462, 4)
    assert found.observed_longest_throttle_ms == 12_372


def test_what_no_source_tells_stays_unknown_and_what_one_tells_counts() -> None:
    unknown = over(0, throttled_ms=None, throttled_requests=None, limit_per_s=None, peak_rate_per_s=None)
    [found] = joined([unknown, unknown._replace(start_ms=1_000, last_ms=1_000)], GAP_MS)
    assert (found.throttled_ms, found.throttled_requests, found.limit_per_s, found.peak_rate_per_s) == (
        None,
    ) * 4
    [found] = joined([unknown, over(1_000)], GAP_MS)
    assert (found.throttled_ms, found.throttled_requests, found.limit_per_s, found.peak_rate_per_s) == (
        70,
        2,
        1e6,
        2e6,
    )


def test_it_is_called_after_bucket_and_start_as_in_every_release() -> None:
    text = b"demo\x001\x00produce\x00alice\x00\x001795239600000"
    assert Violation(ALICE, over(1_795_239_600_000), None).episode_id == hashlib.sha256(text).hexdigest()[:32]
    tagged = ALICE._replace(tags='{"group": "pay"}')
    text = b'demo\x001\x00produce\x00alice\x00\x00{"group": "pay"}\x001795239600000'
    assert (
        Violation(tagged, over(1_795_239_600_000), None).episode_id == hashlib.sha256(text).hexdigest()[:32]
    )


def test_it_ends_when_the_time_of_its_own_source_has_passed_the_gap() -> None:
    def end_ms(bucket: BucketId, **newest_ms: int) -> int | None:
        clocks = Clocks({("demo", 1, source): time_ms for source, time_ms in newest_ms.items()})
        [found] = folded([(bucket, over(0))], clocks, GAP_MS)
        return found.end_ms

    assert end_ms(ALICE, log=3_000) is None
    assert end_ms(ALICE, log=3_001) == 1_000
    assert end_ms(ALICE, jmx=600_000) is None
    assert end_ms(ALICE._replace(broker_id=2), log=600_000) is None
    # The controller's bucket is rarely used: any broker's time is its own, of its cluster.
    assert end_ms(ALICE._replace(broker_id=CONTROLLER_ID), log=3_001) == 1_000
    assert end_ms(ALICE._replace(broker_id=CONTROLLER_ID, cluster_id="other"), log=600_000) is None
