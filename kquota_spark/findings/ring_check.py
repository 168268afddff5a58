"""Whether the log of a broker fits another sample ring, window or clock than the audit is configured with.

Nothing in a request log shows which ring its broker has. But rings differ wherever traffic comes in pulses near a
limit. So a sample of the log is judged again with another ring, and the verdicts that differ from the broker's are
counted. Wrong quotas make verdicts wrong as well, but with every ring. So another ring is reported only if it leaves
almost nothing to explain.

Windows are tried from a list of sizes and numbers that operators choose. A quick check, without uncertainty, ranks
them; the few best ones are judged in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import attrgetter
from typing import NamedTuple

from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import BrokerBucket, Traffic, governed_seconds_of
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict

MOST_REQUESTS = 20_000
MOST_OF_A_BUCKET = 2_000
"""Maximum number of requests per bucket in the sample.

So it contains at least ten busy buckets: a single one may be a client that never comes near its limit.
"""

LEAST_WRONG = 20
"""Fewest wrong verdicts for a check. One sample that opened a request later makes a run of them.

14 were seen with the right ring.
"""

LEAST_FACTOR = 10
"""How many times fewer wrong verdicts another ring must have, at least.

It was measured on ten logs of real brokers. The wrong ring has at least 17 times the wrong verdicts of the right one
(in a log of 270 produces), mostly above 100 times. With the right ring but wrong windows or limits, the other ring was
better by 4.8 times at most, mostly by less than 2.
"""

OTHER_VARIANT = {RingVariant.UP_TO_3_7: RingVariant.FROM_3_8, RingVariant.FROM_3_8: RingVariant.UP_TO_3_7}
_BROKER = {RingVariant.UP_TO_3_7: "a broker before 3.8", RingVariant.FROM_3_8: "a broker of 3.8 or later"}
_COMPARED = {Outcome.AGREES, Outcome.FALSE_POSITIVE, Outcome.FALSE_NEGATIVE}

WINDOW_SIZES_MS = (1_000, 2_000, 3_000, 5_000, 10_000, 30_000, 60_000)
WINDOW_NUMS = (2, 3, 4, 5, 6, 7, 10, 11, 12, 15, 16, 20, 21, 30, 31, 60, 61)
_CONFIRMED = 3
_QUICK_REQUESTS = 600
"""Maximum number of requests per bucket in the quick check, which runs 238 times."""
_SAME_MS = 1_000
"""Clocks that differ by less (ms) count as equal: NTP keeps them closer, and shipping takes part of the difference."""


@dataclass(frozen=True, slots=True)
class RingEvidence:
    """Evidence that the log fits the other ring, which is `variant`.

    `compared` counts the produces of the sample for which both rings are certain. The two other numbers count those
    verdicts that differ from the broker's, with the configured ring and with the other one.
    """

    variant: RingVariant
    wrong_with_configured: int
    wrong_with_other: int
    compared: int

    @property
    def message(self) -> str:
        """The evidence in one sentence for the user."""
        return (
            f"this looks like {_BROKER[self.variant]}: of {self.compared:,} verdicts "
            f"{self.wrong_with_configured:,} are not the broker's as configured, "
            f"{self.wrong_with_other:,} with the sample ring of such a broker"
        )


def likely_variant(buckets: Iterable[Sequence[GovernedSecond]], config: RateConfig) -> RingEvidence | None:
    """The other ring, if the log fits it clearly better; None if it does not, or there is too little evidence.

    Only produces count, because the bytes that a fetch read are not always known.
    """
    sample = sample_of(buckets)
    configured = verdicts_of(sample, config)
    if not is_worth_a_check(configured):
        return None
    variant = OTHER_VARIANT[config.variant]
    found = compare(configured, verdicts_of(sample, replace(config, variant=variant)))
    return RingEvidence(variant, *found) if found.is_better else None


class Comparison(NamedTuple):
    """Wrong verdicts with the configured settings and with others, among those for which both are certain."""

    wrong: int
    wrong_with_other: int
    compared: int

    @property
    def is_better(self) -> bool:
        """Whether the other settings leave almost nothing to explain."""
        return self.wrong >= max(LEAST_WRONG, LEAST_FACTOR * self.wrong_with_other)


def is_worth_a_check(configured: Iterable[Verdict]) -> bool:
    """Whether there are too many wrong verdicts for one sample that opened late."""
    return sum(verdict.is_wrong for verdict in configured if verdict.outcome in _COMPARED) >= LEAST_WRONG


def compare(configured: Iterable[Verdict], other: Iterable[Verdict]) -> Comparison:
    """Compare verdicts on the same requests, given in the same order."""
    both = [
        (ours.is_wrong, theirs.is_wrong)
        for ours, theirs in zip(configured, other, strict=True)
        if ours.outcome in _COMPARED and theirs.outcome in _COMPARED
    ]
    return Comparison(sum(ours for ours, _ in both), sum(theirs for _, theirs in both), len(both))


def sample_of(buckets: Iterable[Sequence[GovernedSecond]]) -> list[list[GovernedSecond]]:
    """The part that is judged again: the beginning of each bucket with produces under a limit, up to a maximum."""
    sample: list[list[GovernedSecond]] = []
    taken = 0
    for bucket in buckets:
        if any(map(_is_evidence, bucket)):
            sample.append(_first_seconds(bucket, min(MOST_OF_A_BUCKET, MOST_REQUESTS - taken)))
            taken += sum(len(governed.points) for governed in sample[-1])
            if taken >= MOST_REQUESTS:
                break
    return sample


def verdicts_of(sample: Iterable[Sequence[GovernedSecond]], config: RateConfig) -> list[Verdict]:
    """Judge a sample with the ring of `config`."""
    verdicts: list[Verdict] = []
    for bucket in sample:
        judge_bucket(BucketReplay(config, learns=False), bucket, verdicts)
    return verdicts


def _first_seconds(bucket: Sequence[GovernedSecond], most: int) -> list[GovernedSecond]:
    """Whole seconds, until there are `most` requests: a part of a second would open samples at other requests."""
    part: list[GovernedSecond] = []
    requests = 0
    by_second = attrgetter("second_ms")
    for _, second in groupby(sorted(bucket, key=by_second), key=by_second):
        if requests >= most:
            break
        for governed in second:
            part.append(governed)
            requests += len(governed.points)
    return part


def _is_evidence(governed: GovernedSecond) -> bool:
    limit, has_request_quota = governed.governing.limit_per_s, governed.governing.has_request_quota
    is_produce = governed.points[0].kind == PointKind.PRODUCE
    return bool(limit) and is_produce and not has_request_quota


@dataclass(frozen=True, slots=True)
class Fit:
    """The settings that the log fits instead."""

    config: RateConfig
    clock_ahead_ms: int
    comparison: Comparison


def likely_settings(
    traffic: Sequence[Traffic], governor: Governor, config: RateConfig, clock_ahead_ms: int
) -> Fit | None:
    """The ring, window or clock that a broker's log fits clearly better than the configured one; None if none does.

    Args:
        traffic: usage from one broker's log, by second and client.
        governor: the quotas over time.
        config: the configured windows.
        clock_ahead_ms: how far (ms) the broker's clock is ahead by the times of its lines; tried from one second on.
    """
    sample = _sample(governed_seconds_of(traffic, governor))
    configured = verdicts_of(sample, config)
    if not is_worth_a_check(configured):
        return None
    fits = [
        Fit(other, 0, compare(configured, verdicts_of(sample, other)))
        for other in _most_promising(sample, config)
    ]
    if abs(clock_ahead_ms) >= _SAME_MS:
        shifted = _sample(governed_seconds_of(traffic, governor, clock_ahead_ms=clock_ahead_ms))
        # Other quotas may lead to other buckets, so the requests of both samples are matched one by one.
        theirs = {verdict.point: verdict for verdict in verdicts_of(shifted, config)}
        ours = [verdict for verdict in configured if verdict.point in theirs]
        found = compare(ours, [theirs[verdict.point] for verdict in ours])
        fits.append(Fit(config, clock_ahead_ms, found))
    better = [fit for fit in fits if fit.comparison.is_better]
    return min(better, key=lambda fit: fit.comparison.wrong_with_other, default=None)


def _sample(buckets: Mapping[BrokerBucket, list[GovernedSecond]]) -> list[list[GovernedSecond]]:
    ordered = sorted(buckets, key=lambda key: (key[0], key[1], key[2].user, key[2].client_id))
    return sample_of(buckets[key] for key in ordered)


def _most_promising(sample: Sequence[Sequence[GovernedSecond]], config: RateConfig) -> list[RateConfig]:
    """The other rings with the fewest wrong verdicts in a quick check, the likeliest first."""
    columns = [_columns(bucket) for bucket in sample]
    rings = (
        RateConfig(variant=variant, window_ms=window_ms, num_samples=num)
        for variant, window_ms, num in product(RingVariant, WINDOW_SIZES_MS, WINDOW_NUMS)
    )
    tried = {other: sum(_wrong(each, other) for each in columns) for other in rings if other != config}
    changes = {other: (other.variant is not config.variant) + (other.window_ms != config.window_ms)
               + (other.num_samples != config.num_samples) for other in tried}  # fmt: skip
    return sorted(tried, key=lambda other: (tried[other], changes[other]))[:_CONFIRMED]


class _Columns(NamedTuple):
    """Requests of a bucket as columns.

    `compared` has the place of each request with a verdict, its limit per ms, and whether the broker throttled it.
    """

    amounts: list[int]
    times_ms: list[int]
    compared: list[tuple[int, float, bool]]


def _columns(bucket: Sequence[GovernedSecond]) -> _Columns:
    ordered = sorted(
        (point, governed.governing.limit_per_s or 0.0, governed.governing.has_request_quota)
        for governed in bucket
        for point in governed.points
    )[:_QUICK_REQUESTS]
    compared = [
        (place, limit / 1_000.0, point.observed_throttle_ms > 0)
        for place, (point, limit, has_request_quota) in enumerate(ordered)
        if limit and not has_request_quota and point.kind == PointKind.PRODUCE
    ]
    points = [point for point, _, _ in ordered]
    return _Columns([point.amount for point in points], [point.record_time_ms for point in points], compared)


def _wrong(columns: _Columns, config: RateConfig) -> int:
    totals, windows_ms = SampleRing(config).record_all(columns.amounts, columns.times_ms)
    return sum(
        (totals[place] > per_ms * windows_ms[place]) is not is_throttled
        for place, per_ms, is_throttled in columns.compared
    )
