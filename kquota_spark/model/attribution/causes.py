"""The causes of a delay, each with its part. The parts and the rest add up to the delay by replay, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from kquota_spark.model.attribution.counterfactuals import Case, Change, Replay
from kquota_spark.model.attribution.detectors import (
    DETECTORS,
    LEFT_PERCENT,
    UNDECIDED,
    Cause,
    Detector,
    Evidence,
    Facts,
)
from kquota_spark.model.attribution.observed import Observed
from kquota_spark.model.attribution.precision import confidence
from kquota_spark.model.attribution.shapley import MOST_EXACT, Shares, shares

NAMED_PERCENT = 10
"""Least share of the delay of a cause that is named, percent."""
LEAST_DELAY_MS = 1_000
"""Least total delay for which causes are searched, ms."""


@dataclass(frozen=True, slots=True)
class Part:
    """One cause with its part of the delay."""

    cause: Cause
    facts: Facts
    """The evidence: numbers by name with unit."""
    share_ms: int
    """Its part of the delay; below 0 if the delay is longer without the cause."""
    share_percent: float
    """The same in percent of the delay."""
    without_ms: int
    """The delay without this cause alone."""

    @property
    def is_named(self) -> bool:
        """Whether its part is large enough to be named."""
        return self.share_percent >= NAMED_PERCENT

    @property
    def confidence(self) -> float:
        """Its share of the delay times the precision of its detector, from 0 to 1; half while a burst is possible."""
        whole = confidence(self.cause, self.share_percent)
        return whole / 2 if self.is_undecided else whole

    @property
    def is_undecided(self) -> bool:
        """Whether it may still be a burst after idle: its minute is not over."""
        return UNDECIDED in self.facts


@dataclass(frozen=True, slots=True)
class Attribution:
    """The causes with evidence, the largest part first."""

    delay_ms: int
    """By replay of the recorded requests."""
    rest_ms: int
    """The delay without all causes: the bucket is at its limit without them too."""
    parts: tuple[Part, ...] = ()

    @property
    def named(self) -> tuple[Part, ...]:
        """The causes that are named."""
        return tuple(part for part in self.parts if part.is_named)

    @property
    def rest_percent(self) -> float:
        """The delay without all causes, in percent of the delay."""
        return 100 * self.rest_ms / self.delay_ms if self.delay_ms else 0.0

    @property
    def is_steady(self) -> bool:
        """Whether no cause is named although the bucket was throttled."""
        return self.delay_ms >= LEAST_DELAY_MS and not self.named

    @property
    def main(self) -> Cause | None:
        """The named cause with the largest part, or steady at the limit; None if the delay is too short for causes."""
        if self.delay_ms < LEAST_DELAY_MS:
            return None
        return self.named[0].cause if self.named else Cause.STEADY


def attribute(observed: Observed, detectors: Sequence[Detector] = DETECTORS) -> Attribution:
    """The causes of the delay of a bucket in a period.

    Args:
        observed: the bucket with what came before.
        detectors: those that search, in the order in which a case loses several causes.
    """
    delay_ms = observed.delay_ms
    if delay_ms < LEAST_DELAY_MS:
        return Attribution(delay_ms, delay_ms)
    found = _found(observed, detectors)
    if not found:
        return Attribution(delay_ms, delay_ms)
    changes = [evidence.change for _, evidence in found]
    divided, without_ms = parts_of(observed.case, observed.replay, changes)
    parts = [
        Part(detector.cause, evidence.facts, share_ms, 100 * share_ms / delay_ms, without)
        for (detector, evidence), (share_ms,), without in zip(found, divided.parts, without_ms, strict=True)
    ]
    parts.sort(key=lambda part: -part.share_ms)
    return Attribution(delay_ms, divided.base[0], tuple(parts))


def _found(observed: Observed, detectors: Sequence[Detector]) -> list[tuple[Detector, Evidence]]:
    """The causes with evidence, in the order of the detectors: changes first, then conditions."""
    changes = [
        (detector, evidence)
        for detector in detectors
        if not detector.is_condition and (evidence := detector.find(observed, observed.case)) is not None
    ]
    usual = reduce(lambda case, each: each[1].change(case), changes, observed.case)
    left_ms = observed.replay.delay_ms(usual) if changes else observed.delay_ms
    if 100 * left_ms < LEFT_PERCENT * observed.delay_ms:
        return changes
    return changes + [
        (detector, evidence)
        for detector in detectors
        if detector.is_condition and (evidence := detector.find(observed, usual)) is not None
    ]


def parts_of(case: Case, replay: Replay, changes: Sequence[Change]) -> tuple[Shares, list[int]]:
    """The part of each cause, and the delay without that cause alone (ms).

    Args:
        case: the recorded requests.
        replay: how the brokers measure them.
        changes: for each cause the case without it, in the order in which a case loses several.
    """
    count = len(changes)
    if count <= MOST_EXACT:
        delays_ms = _all_delays_ms(case, replay, changes)
        divided = shares(count, lambda mask: (delays_ms[mask],))
    else:
        divided = shares(count, lambda mask: (replay.delay_ms(_without(case, changes, mask)),))
        delays_ms = {}
    whole = (1 << count) - 1
    masks = [whole & ~(1 << place) for place in range(count)]
    without_ms = [
        delays_ms[mask] if delays_ms else replay.delay_ms(_without(case, changes, mask)) for mask in masks
    ]
    return divided, without_ms


def _without(case: Case, changes: Sequence[Change], mask: int) -> Case:
    """The case with only the causes of a set."""
    for place, change in enumerate(changes):
        if not mask >> place & 1:
            case = change(case)
    return case


def _all_delays_ms(case: Case, replay: Replay, changes: Sequence[Change]) -> dict[int, int]:
    """The delay of each set of causes. Sets that begin alike share their first steps."""
    found: dict[int, int] = {}
    waiting = [(0, case, 0)]
    while waiting:
        place, reached, mask = waiting.pop()
        if place == len(changes):
            found[mask] = replay.delay_ms(reached)
        else:
            waiting.append((place + 1, reached, mask | 1 << place))
            waiting.append((place + 1, changes[place](reached), mask))
    return found
