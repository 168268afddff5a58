"""The time throttled of a bucket: the seconds of the clock in which a throttle began or still ran."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """Whole seconds of the clock, from the first until before the end."""

    first_s: int
    end_s: int


def muted(second_s: int, longest_ms: int) -> Span:
    """The seconds in which a throttle that began in a second held; at least that second.

    In SQL, `schema.harm.mute_end_ms` has the same rule.

    Args:
        second_s: the second.
        longest_ms: the longest throttle in it, ms.
    """
    return Span(second_s, second_s + max(1, -(-longest_ms // 1_000)))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in the order of time, with those that touch or overlap as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.first_s <= found[-1].end_s:
            found[-1] = Span(found[-1].first_s, max(found[-1].end_s, span.end_s))
        else:
            found.append(span)
    return found


def seconds_of(spans: Iterable[Span], first_s: int, end_s: int) -> int:
    """Seconds that spans cover together, from `first_s` until before `end_s`."""
    return sum(max(0, min(span.end_s, end_s) - max(span.first_s, first_s)) for span in joined(spans))


def muted_until(throttles: Iterable[tuple[int, int]], end_ms: int) -> tuple[Span, ...]:
    """The seconds in which throttles began or still ran, up to the end of a period.

    Args:
        throttles: times at which throttles began (epoch ms) and their lengths (ms).
        end_ms: end of the period, epoch ms, exclusive.
    """
    end_s = -(-end_ms // 1_000)
    spans = joined(muted(time_ms // 1_000, length_ms) for time_ms, length_ms in throttles)
    return tuple(span._replace(end_s=min(span.end_s, end_s)) for span in spans if span.first_s < end_s)
