"""What a worker judges by, as of one read of the tables: quotas, windows of the brokers, gaps of their logs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from kquota_spark.model.govern.govern import Governor, RequestCoverage, RuleGovernor
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.pipeline.shadow.rules import Shadow
from kquota_spark.schema.gap_tables import BROKER_START

Gap = tuple[int, int]
"""Times between which lines of a broker's log are missing, epoch ms, the end exclusive."""


def gaps_at(gaps: Sequence[Gap], second_ms: int, horizon_ms: int = 0) -> tuple[Gap, ...]:
    """Gaps that reach into a second, each extended by the time that a ring remembers.

    Args:
        gaps: gaps of one broker, in order of their ends.
        second_ms: start of the second, epoch ms.
        horizon_ms: time that a ring remembers, ms; 0 if the gaps are extended already.
    """
    # A broker with many cut lines has thousands of gaps, and nearly all of them ended long ago.
    ended = bisect_right(gaps, second_ms - horizon_ms, key=itemgetter(1))
    later = ((from_ms, to_ms + horizon_ms) for from_ms, to_ms in gaps[ended:])
    return tuple(gap for gap in later if gap[0] < second_ms + 1_000)


def gaps_by_broker(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Gap]]:
    """Gaps of `log_gaps` that make verdicts uncertain, by broker; any broker may be the controller."""
    found: dict[int, list[Gap]] = {}
    for row in rows:
        if row["reason"] != BROKER_START:
            for broker_id in (row["broker_id"], CONTROLLER_ID):
                found.setdefault(broker_id, []).append((row["from_time"], row["to_time"]))
    for of_broker in found.values():
        of_broker.sort(key=itemgetter(1))
    return found


class ReportedWindows(NamedTuple):
    """The windows that one broker reported, and when they held (epoch ms, the end exclusive); None: not reported."""

    from_ms: int
    to_ms: int | None
    ring: str | None
    num_samples: int | None
    window_s: int | None


@dataclass(frozen=True, slots=True)
class BrokerWindows:
    """The sample ring of each broker at its time."""

    settings: RateConfig
    """Windows for brokers that have not reported theirs, or not all of them."""
    reported: Mapping[int, Sequence[ReportedWindows]] = field(default_factory=dict)
    """The reported windows, by broker."""
    given: Collection[str] = ()
    """Keys of the configuration file that have priority over reported windows."""

    def at(self, broker_id: int, time_ms: int) -> RateConfig:
        """The windows of a broker at a time, epoch ms."""
        for reported in self.reported.get(broker_id, ()):
            if reported.from_ms <= time_ms and (reported.to_ms is None or time_ms < reported.to_ms):
                return self._completed(reported)
        return self.settings

    def _completed(self, reported: ReportedWindows) -> RateConfig:
        own, given = self.settings, self.given
        num = None if "quota_window_num" in given else reported.num_samples
        window_s = None if "quota_window_size_seconds" in given else reported.window_s
        return RateConfig(
            own.num_samples if num is None else num,
            own.window_ms if window_s is None else window_s * 1_000,
            own.variant if reported.ring is None or "version" in given else RingVariant(reported.ring),
        )


class Known(NamedTuple):
    """The quotas, and everything else that a verdict depends on beside the log."""

    governor: Governor
    known_through_ms: int | None
    """Time up to which `governor` has all edits, epoch ms; None if the source never reported one."""
    windows: BrokerWindows
    gaps: Mapping[int, Sequence[Gap]]
    """Gaps by broker, in order of their ends. The active controller is not known, so it has the gaps of all brokers."""
    has_callback: bool = False
    """Whether the tags of a quota callback distinguish buckets."""
    begun: frozenset[int] = frozenset()
    """Brokers with a known beginning of their log."""
    shadow: Shadow | None = None
    """Quotas that are judged beside those of `governor`; None for none."""

    @property
    def coverage(self) -> RequestCoverage:
        """The clients that need a measure of thread time, for the enforced or the shadow quotas."""
        found = self.governor.coverage
        return found if self.shadow is None else found | self.shadow.governor.coverage

    def gaps_at(self, broker_id: int, second_ms: int, horizon_ms: int) -> tuple[Gap, ...]:
        """Gaps of a broker that reach into a second, each extended by the time that a ring remembers."""
        return gaps_at(self.gaps.get(broker_id, ()), second_ms, horizon_ms)


class IpLimit(NamedTuple):
    """The quota of one address, and when it held (epoch ms, the end exclusive)."""

    from_ms: int
    to_ms: int | None
    limit_per_s: float
    version: int | None


class Limits(NamedTuple):
    """The limits of buckets with known tags, and of addresses by the canonical names of their entities."""

    governor: RuleGovernor
    ips: Mapping[str, Sequence[IpLimit]]
    known_through_ms: int | None
