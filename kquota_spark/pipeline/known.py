"""What a worker judges by, as of one look at the tables: quotas, windows of the brokers, gaps of their logs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from kquota_spark.model.govern.govern import Governor, RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant

Gap = tuple[int, int]
"""Lines of a broker's log are missing between these times, epoch ms, the end exclusive."""


def gaps_at(gaps: Sequence[Gap], second_ms: int, horizon_ms: int = 0) -> tuple[Gap, ...]:
    """Gaps that reach into a second, each with what a ring remembers after its end.

    Args:
        gaps: of one broker, in order of their ends.
        second_ms: start of the second, epoch ms.
        horizon_ms: for how long a ring remembers; 0 where the gaps have that already.
    """
    # A broker whose lines are often cut has thousands of gaps, and nearly all of them ended long ago.
    ended = bisect_right(gaps, second_ms - horizon_ms, key=itemgetter(1))
    later = ((from_ms, to_ms + horizon_ms) for from_ms, to_ms in gaps[ended:])
    return tuple(gap for gap in later if gap[0] < second_ms + 1_000)


class ToldWindows(NamedTuple):
    """What one broker told of its windows, and when that held (epoch ms, the end exclusive); None: it did not tell."""

    from_ms: int
    to_ms: int | None
    ring: str | None
    num_samples: int | None
    window_s: int | None


@dataclass(frozen=True, slots=True)
class BrokerWindows:
    """The sample ring of each broker at its time.

    Attributes:
        settings: for brokers that have not told, or not all.
        told: what they told, by broker.
        given: the keys of the configuration file that win over what brokers tell.
    """

    settings: RateConfig
    told: Mapping[int, Sequence[ToldWindows]] = field(default_factory=dict)
    given: Collection[str] = ()

    def at(self, broker_id: int, time_ms: int) -> RateConfig:
        """The windows of a broker."""
        for told in self.told.get(broker_id, ()):
            if told.from_ms <= time_ms and (told.to_ms is None or time_ms < told.to_ms):
                return self._completed(told)
        return self.settings

    def _completed(self, told: ToldWindows) -> RateConfig:
        own, given = self.settings, self.given
        num = None if "quota_window_num" in given else told.num_samples
        window_s = None if "quota_window_size_seconds" in given else told.window_s
        return RateConfig(
            own.num_samples if num is None else num,
            own.window_ms if window_s is None else window_s * 1_000,
            own.variant if told.ring is None or "version" in given else RingVariant(told.ring),
        )


class Known(NamedTuple):
    """The quotas and what else a verdict depends on beside the log."""

    governor: Governor
    known_through_ms: int | None
    """All edits up to here are in `governor`; None if the source never said."""
    windows: BrokerWindows
    gaps: Mapping[int, Sequence[Gap]]
    """By broker, in order of their ends. No line says which broker is the active controller: its are those of all."""
    has_callback: bool = False
    """Buckets are told apart by the tags of a quota callback."""
    begun: frozenset[int] = frozenset()
    """Brokers of which it is known how their logs begin."""

    def gaps_at(self, broker_id: int, second_ms: int, horizon_ms: int) -> tuple[Gap, ...]:
        """Gaps that reach into a second, each with what a ring remembers after its end."""
        return gaps_at(self.gaps.get(broker_id, ()), second_ms, horizon_ms)


class IpLimit(NamedTuple):
    """The quota of one address, and when it held (epoch ms, the end exclusive)."""

    from_ms: int
    to_ms: int | None
    limit_per_s: float
    version: int | None


class Limits(NamedTuple):
    """The limits of buckets whose tags are known, and of addresses by the canonical names of their entities."""

    governor: RuleGovernor
    ips: Mapping[str, Sequence[IpLimit]]
    known_through_ms: int | None
