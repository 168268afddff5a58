"""Whether the log of a broker looks like the other sample ring, so like another version than configured.

Nothing in a request log says which ring its broker has. But the two rings part wherever traffic comes in
pulses near a limit, so a sample of the log is judged with both, and the verdicts that differ from the broker's
are counted. Windows or quotas that are not the broker's make verdicts wrong as well, but with both rings: the
other one is named only when it leaves next to nothing to explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.replay.decision import Stretch, judge_bucket
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Verdict

MOST_REQUESTS = 20_000
MOST_OF_A_BUCKET = 2_000
"""So that ten busy buckets are in the sample at least: one alone may be a client that never nears its limit."""

LEAST_WRONG = 20
"""A sample that opened one request later makes a run of wrong verdicts: 14 were seen with the right ring."""

LEAST_FACTOR = 10
"""Measured on ten logs of real brokers: the wrong ring has at least 17 times the wrong verdicts of the right one
(that in a log of 270 produces), mostly above 100 times. With the right ring but windows or limits that are not the
broker's, the other ring came out better by 4.8 times at most, mostly by less than 2."""

OTHER_VARIANT = {RingVariant.UP_TO_3_7: RingVariant.FROM_3_8, RingVariant.FROM_3_8: RingVariant.UP_TO_3_7}
_BROKER = {RingVariant.UP_TO_3_7: "a broker before 3.8", RingVariant.FROM_3_8: "a broker of 3.8 or later"}
_COMPARED = {Outcome.AGREES, Outcome.FALSE_POSITIVE, Outcome.FALSE_NEGATIVE}


@dataclass(frozen=True, slots=True)
class RingEvidence:
    """Why the log looks like the other ring.

    `compared` are the produces of the sample about which both rings are certain; of them so many verdicts
    are not the broker's with the configured ring and with the other one, which is `variant`.
    """

    variant: RingVariant
    wrong_with_configured: int
    wrong_with_other: int
    compared: int

    @property
    def message(self) -> str:
        """One sentence for the user."""
        return (
            f"this looks like {_BROKER[self.variant]}: of {self.compared:,} verdicts "
            f"{self.wrong_with_configured:,} are not the broker's as configured, "
            f"{self.wrong_with_other:,} with the sample ring of such a broker"
        )


def likely_variant(buckets: Iterable[Sequence[Stretch]], config: RateConfig) -> RingEvidence | None:
    """The other ring, if the log fits it clearly better; None if it does not, or too little tells.

    Args:
        buckets: the stretches of each bucket; produce counts, what a fetch had read is not always known.
        config: as configured.
    """
    sample = sample_of(buckets)
    configured = verdicts_of(sample, config)
    if not is_worth_a_look(configured):
        return None
    variant = OTHER_VARIANT[config.variant]
    found = compare(configured, verdicts_of(sample, replace(config, variant=variant)))
    return (
        RingEvidence(variant, found.wrong, found.wrong_with_other, found.compared)
        if found.is_better
        else None
    )


class Comparison(NamedTuple):
    """Wrong verdicts with what is configured and with something else, of those about which both are certain."""

    wrong: int
    wrong_with_other: int
    compared: int

    @property
    def is_better(self) -> bool:
        """Whether the other one leaves next to nothing to explain."""
        return self.wrong >= max(LEAST_WRONG, LEAST_FACTOR * self.wrong_with_other)


def is_worth_a_look(configured: Iterable[Verdict]) -> bool:
    """Whether there is more to explain than one sample that opened late."""
    return sum(verdict.is_wrong for verdict in configured if verdict.outcome in _COMPARED) >= LEAST_WRONG


def compare(configured: Iterable[Verdict], other: Iterable[Verdict]) -> Comparison:
    """Count over verdicts on the same requests in the same order."""
    both = [
        (ours.is_wrong, theirs.is_wrong)
        for ours, theirs in zip(configured, other, strict=True)
        if ours.outcome in _COMPARED and theirs.outcome in _COMPARED
    ]
    return Comparison(sum(ours for ours, _ in both), sum(theirs for _, theirs in both), len(both))


def sample_of(buckets: Iterable[Sequence[Stretch]]) -> list[list[Stretch]]:
    """The part of the buckets that is judged again."""
    return list(_sample(buckets))


def verdicts_of(sample: Iterable[Sequence[Stretch]], config: RateConfig) -> list[Verdict]:
    """Judge a sample with a ring."""
    verdicts: list[Verdict] = []
    for bucket in sample:
        judge_bucket(BucketReplay(config, learns=False), bucket, verdicts)
    return verdicts


def _sample(buckets: Iterable[Sequence[Stretch]]) -> Iterator[list[Stretch]]:
    """The beginning of each bucket that tells something, until there is enough."""
    taken = 0
    for bucket in buckets:
        if not any(map(_tells, bucket)):
            continue
        part = _first_seconds(bucket, min(MOST_OF_A_BUCKET, MOST_REQUESTS - taken))
        yield part
        taken += sum(len(stretch.points) for stretch in part)
        if taken >= MOST_REQUESTS:
            return


def _first_seconds(bucket: Sequence[Stretch], most: int) -> list[Stretch]:
    """Whole seconds until there are so many requests: half a one would open samples where none opened."""
    part: list[Stretch] = []
    requests = 0
    by_second = attrgetter("second_ms")
    for _, second in groupby(sorted(bucket, key=by_second), key=by_second):
        if requests >= most:
            break
        for stretch in second:
            part.append(stretch)
            requests += len(stretch.points)
    return part


def _tells(stretch: Stretch) -> bool:
    limit, has_request_quota = stretch.governing.limit_per_s, stretch.governing.has_request_quota
    is_produce = stretch.points[0].kind == PointKind.PRODUCE
    return bool(limit) and is_produce and not has_request_quota
