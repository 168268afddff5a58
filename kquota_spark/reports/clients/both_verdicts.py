"""The requests of one broker, judged under past quotas and under others, with the past sample ring or with another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.govern.traffic import Traffic, governed_seconds_of
from kquota_spark.model.loops.open_loop import Judged, judged
from kquota_spark.model.loops.tried import Closed, Key, closed_loop
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import GovernedSecond


class RingPair(NamedTuple):
    """The sample ring of a broker, and the one that is tried; mostly they are equal."""

    was: RateConfig
    tried: RateConfig

    @property
    def are_equal(self) -> bool:
        """Whether the tried ring is the past one."""
        return self.was == self.tried


@dataclass(frozen=True, slots=True)
class Flips:
    """Requests of one bucket with another verdict: throttled only under the tried quotas and ring, or only before."""

    only_after: int = 0
    only_before: int = 0

    def __add__(self, other: Flips) -> Flips:
        """The flips of two brokers."""
        return Flips(self.only_after + other.only_after, self.only_before + other.only_before)


class BothVerdicts:
    """The requests of one broker, judged twice: most buckets do not change, and so have one verdict."""

    def __init__(
        self,
        rows: Sequence[Traffic],
        before: Governor,
        after: Governor,
        rings: RingPair,
        mutation: RateConfig,
    ) -> None:
        as_was, as_tried = (
            {key[1:]: of_bucket for key, of_bucket in governed_seconds_of(rows, governor).items()}
            for governor in (before, after)
        )
        self._rings, self._mutation = rings, mutation
        self._earlier: dict[QuotaType, dict[tuple[Point, tuple[str, str]], Judged]] = {}
        self.was = {key: self._judged(key, of_bucket, is_recorded=True) for key, of_bucket in as_was.items()}
        self._changed = {
            key
            for key, of_bucket in as_tried.items()
            if self._has_other_ring(key) or _limits(of_bucket) != _limits(as_was.get(key, ()))
        }
        self.tried = {
            key: self._judged(key, of_bucket, is_recorded=False) if key in self._changed else self.was[key]
            for key, of_bucket in as_tried.items()
        }

    def _has_other_ring(self, key: Key) -> bool:
        return not self._rings.are_equal and key[0] is not QuotaType.CONTROLLER_MUTATION

    def _judged(self, key: Key, of_bucket: Sequence[GovernedSecond], *, is_recorded: bool) -> list[Judged]:
        ring = self._rings.was if is_recorded else self._rings.tried
        if key[0] is QuotaType.CONTROLLER_MUTATION:
            ring = self._mutation
        return judged(key[0], of_bucket, ring, is_recorded=is_recorded)

    def closed(self, from_ms: int, to_ms: int) -> dict[Key, Closed]:
        """The buckets that change in the closed loop; controller mutations have none."""
        was, tried = (
            {key: of_bucket for key, of_bucket in side.items() if key[0] is not QuotaType.CONTROLLER_MUTATION}
            for side in (self.was, self.tried)
        )
        return closed_loop(was, tried, self._changed & tried.keys(), self._rings.tried, from_ms, to_ms)

    def flips(self, from_ms: int) -> dict[Key, Flips]:
        """The flips of the changed buckets from a time (epoch ms) on.

        Throttled fetches are left out: their size is not in the log, so no other verdict on them is known.
        """
        return {
            key: _flips(pair for pair in self._pairs(key) if pair[1].point.record_time_ms >= from_ms)
            for key in self._changed
        }

    def _pairs(self, key: Key) -> Iterable[tuple[Judged, Judged]]:
        """Each request of a tried bucket with its past verdict, which other rules may have in another bucket."""
        was, tried = self.was.get(key, ()), self.tried[key]
        if len(was) == len(tried) and all(map(_is_of_one_request, was, tried)):
            return zip(was, tried, strict=True)
        if key[0] not in self._earlier:
            self._earlier[key[0]] = {
                (each.point, each.client): each
                for other, of_bucket in self.was.items()
                if other[0] is key[0]
                for each in of_bucket
            }
        earlier = self._earlier[key[0]]
        return ((earlier[each.point, each.client], each) for each in tried)


def _is_of_one_request(one: Judged, other: Judged) -> bool:
    return one.point is other.point


def _flips(pairs: Iterable[tuple[Judged, Judged]]) -> Flips:
    only_after = only_before = 0
    for was, tried in pairs:
        if was.is_inferred or tried.is_inferred or was.is_unknown or tried.is_unknown:
            continue
        only_after += was.throttle_ms <= 0 < tried.throttle_ms
        only_before += tried.throttle_ms <= 0 < was.throttle_ms
    return Flips(only_after, only_before)


def _limits(of_bucket: Sequence[GovernedSecond]) -> list[tuple[object, ...]]:
    """All inputs that the throttles of a bucket depend on, beside the ring."""
    return [(each.second_ms, each.governing.limit_per_s, each.points) for each in of_bucket]
