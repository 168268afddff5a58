"""Whether the log of a broker looks like other window settings, or another clock, than the audit was given.

As in `ring_check`, a sample is judged again with something else, and that is named only if it leaves next to nothing
to explain: at least 20 wrong verdicts as configured, and at most a tenth of them otherwise. Windows are tried from a
list of sizes and numbers that operators choose; the few best ones of a quick look, which knows no uncertainty, are
judged in earnest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from kquota_spark.findings.ring_check import Comparison, compare, is_worth_a_look, sample_of, verdicts_of
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import Traffic, stretches_of
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.decision import Stretch

WINDOW_SIZES_MS = (1_000, 2_000, 3_000, 5_000, 10_000, 30_000, 60_000)
WINDOW_NUMS = (2, 3, 4, 5, 6, 7, 10, 11, 12, 15, 16, 20, 21, 30, 31, 60, 61)
_CONFIRMED = 3
_AT_A_LOOK = 600
"""Requests of each bucket at the quick look, which is taken 238 times."""
_SAME_MS = 1_000
"""Clocks this near to each other are taken for the same: NTP keeps them so, and shipping takes some of it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the log looks like instead."""

    config: RateConfig
    clock_ahead_ms: int
    comparison: Comparison


def likely_settings(
    traffic: Sequence[Traffic], governor: Governor, config: RateConfig, clock_ahead_ms: int
) -> Fit | None:
    """The ring, window or clock that the log fits clearly better than what is configured; None if none does.

    Args:
        traffic: of one broker.
        governor: the quotas over time.
        config: as configured.
        clock_ahead_ms: what the times of the lines say about the broker's clock; tried if it is a second or more.
    """
    sample = _sample(stretches_of(traffic, governor))
    configured = verdicts_of(sample, config)
    if not is_worth_a_look(configured):
        return None
    fits = [
        Fit(other, 0, compare(configured, verdicts_of(sample, other)))
        for other in _most_promising(sample, config)
    ]
    if abs(clock_ahead_ms) >= _SAME_MS:
        shifted = _sample(stretches_of(traffic, governor, clock_ahead_ms=clock_ahead_ms))
        # Other quotas may make other buckets, so the requests of both samples are matched one by one.
        theirs = {verdict.point: verdict for verdict in verdicts_of(shifted, config)}
        ours = [verdict for verdict in configured if verdict.point in theirs]
        found = compare(ours, [theirs[verdict.point] for verdict in ours])
        fits.append(Fit(config, clock_ahead_ms, found))
    better = [fit for fit in fits if fit.comparison.is_better]
    return min(better, key=lambda fit: fit.comparison.wrong_with_other, default=None)


def _sample(buckets: Mapping[tuple[int, QuotaType, Bucket], list[Stretch]]) -> list[list[Stretch]]:
    order: Callable[[tuple[int, QuotaType, Bucket]], tuple[int, str, str, str]] = lambda key: (  # noqa: E731
        key[0], key[1].value, key[2].user, key[2].client_id,
    )  # fmt: skip
    return sample_of(buckets[key] for key in sorted(buckets, key=order))


def _most_promising(sample: Sequence[Sequence[Stretch]], config: RateConfig) -> list[RateConfig]:
    """Rings unlike the configured one with the fewest wrong verdicts at a quick look, the likeliest first."""
    looks = [_look(bucket) for bucket in sample]
    tried = {other: sum(_wrong(look, other) for look in looks) for other in _rings() if other != config}
    changes = {other: (other.variant is not config.variant) + (other.window_ms != config.window_ms)
               + (other.num_samples != config.num_samples) for other in tried}  # fmt: skip
    return sorted(tried, key=lambda other: (tried[other], changes[other]))[:_CONFIRMED]


def _rings() -> Iterator[RateConfig]:
    for variant, window_ms, num in product(RingVariant, WINDOW_SIZES_MS, WINDOW_NUMS):
        yield replace(RateConfig(), variant=variant, window_ms=window_ms, num_samples=num)


class _Look(NamedTuple):
    """Requests of a bucket as columns.

    `compared` are the places of those with a verdict, each with the limit per ms and whether the broker throttled it.
    """

    amounts: list[int]
    times_ms: list[int]
    compared: list[tuple[int, float, bool]]


def _look(bucket: Sequence[Stretch]) -> _Look:
    ordered = sorted(
        (point, stretch.governing.limit_per_s or 0.0, stretch.governing.has_request_quota)
        for stretch in bucket
        for point in stretch.points
    )[:_AT_A_LOOK]
    compared = [
        (place, limit / 1_000.0, point.observed_throttle_ms > 0)
        for place, (point, limit, has_request_quota) in enumerate(ordered)
        if limit and not has_request_quota and point.kind == PointKind.PRODUCE
    ]
    points = [point for point, _, _ in ordered]
    return _Look([point.amount for point in points], [point.record_time_ms for point in points], compared)


def _wrong(look: _Look, config: RateConfig) -> int:
    totals, windows_ms = SampleRing(config).record_all(look.amounts, look.times_ms)
    return sum(
        (totals[place] > per_ms * windows_ms[place]) is not is_throttled
        for place, per_ms, is_throttled in look.compared
    )
