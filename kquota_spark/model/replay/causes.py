"""Why a verdict of the replay could be the other one, as far as its time, its neighbours and its rule show."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS

RULE_EDGE_MS = 100
"""Brokers apply an edit within about this time (ms) of its time in the rules table."""

_INFINITE = float("inf")
_SHARE_FETCH = int(PointKind.SHARE_FETCH)


class Cause(Enum):
    """Why a verdict is uncertain."""

    MARGIN = "rate within 2 ms of the limit"
    ORDER = "another request within 1 ms may have been recorded first"
    SAMPLE = "a sample may have opened or ended at another moment"
    LOG_TIMES = "the broker's throttles show another window than the times of the log"
    RULE_EDGE = "the quota changed within 100 ms or the second"
    THREAD_TIME = "the time on network threads is not in the log"
    IDLE = "the broker drops a bucket that was idle for an hour, at a moment that is not in the log"
    PARTITIONS = "the partitions of a topic deleted or enlarged before are not in the log"
    UNSIZED = "a request came shortly before whose size is not in the log"
    GAP = "lines of the broker's log are missing here or shortly before"


class RuleLimit(NamedTuple):
    """A limit on a bucket (None: no limit), with its rule as in `decisions`."""

    limit_per_s: float | None
    level: int | None = None
    rule: str | None = None
    rule_version: int | None = None


class Governing(NamedTuple):
    """The limit on a request (None: no limit), and the period in which it holds.

    `has_request_quota` is true if a request_percentage covers the client too. The throttle in the broker's log is then
    the larger of two, so the bandwidth verdict cannot be compared with it. Where the request quota itself is judged, it
    is true if another quota may cover the client.

    `gaps` are periods (epoch ms, the end exclusive) for which the log lacks something that a ring remembers.

    `before` and `after` are the limits on the same bucket before and after the period, if they differ from this one.
    """

    limit_per_s: float | None
    valid_from_ms: int = 0
    valid_to_ms: int | None = None
    has_request_quota: bool = False
    gaps: tuple[tuple[int, int], ...] = ()
    before: RuleLimit | None = None
    after: RuleLimit | None = None


def edge_of(governing: Governing, time_ms: int) -> Cause | None:
    """Why no verdict at `time_ms` is certain: a gap in the log, or an edit of the quota close by or in the same second.

    The broker may still have used the quota before the edit, or already the one after it. None if there is no reason.
    """
    gaps = governing[4]
    if gaps and any(from_ms <= time_ms < until_ms for from_ms, until_ms in gaps):
        return Cause.GAP
    return (
        Cause.RULE_EDGE if is_after_edit(governing, time_ms) or is_before_edit(governing, time_ms) else None
    )


def is_after_edit(governing: Governing, time_ms: int) -> bool:
    """Whether the limit began so shortly before `time_ms` that the broker may still have used the one before."""
    from_ms = governing[1]
    return from_ms > min(time_ms - RULE_EDGE_MS, time_ms // 1_000 * 1_000 - 1) if from_ms else False


def is_before_edit(governing: Governing, time_ms: int) -> bool:
    """Whether the limit ends so shortly after `time_ms` that the broker may already have used the next one."""
    to_ms = governing[2]
    return to_ms is not None and to_ms < max(time_ms + RULE_EDGE_MS, time_ms // 1_000 * 1_000 + 1_000)


def may_have_edge(governing: Governing, first_ms: int, last_ms: int) -> bool:
    """Whether `edge_of` may find a cause between two times (epoch ms)."""
    _, valid_from_ms, valid_to_ms, _, gaps, _, _ = governing
    if gaps or (
        valid_from_ms and valid_from_ms > min(first_ms - RULE_EDGE_MS, first_ms // 1_000 * 1_000 - 1)
    ):
        return True
    until_ms = max(last_ms + RULE_EDGE_MS, last_ms // 1_000 * 1_000 + 1_000)
    return valid_to_ms is not None and valid_to_ms < until_ms


def are_far_below(
    totals: Sequence[int], amounts: Sequence[int], least_per_ms: float, config: RateConfig
) -> bool:
    """Whether all requests are so far below their lowest limit that `causes_of` finds nothing, for any windows.

    No window is shorter than the shortest. Each cause is within the length of a sample, or twice the largest request.

    Args:
        totals: amount in the window after each request.
        amounts: amount of each request.
        least_per_ms: the lowest of their limits, amount per ms.
        config: settings of the ring.
    """
    _, _, size_ms, _, shortest_ms = config.lengths
    least_ms = shortest_ms - (size_ms if size_ms > MARGIN_MS else MARGIN_MS)
    most = max(totals)
    return most < least_per_ms * least_ms and most < least_per_ms * shortest_ms - 2 * max(amounts)


def causes_of(
    points: Sequence[Point],
    allowed: Sequence[float],
    totals: Sequence[int],
    windows_ms: Sequence[int],
    config: RateConfig,
) -> list[Cause | None]:
    """The cause by which each verdict could be the other one, as far as its time and its neighbours show.

    Args:
        points: the requests, in `Point` order.
        allowed: limit of each request, amount per ms.
        totals: amount in the window after each request.
        windows_ms: length of the window of each request (ms).
        config: settings of the ring.
    """
    causes: list[Cause | None] = [None] * len(points)
    most = 2 * max(point[4] for point in points)
    size_ms = config.window_ms
    shortest_ms = (config.num_samples - 1) * size_ms
    for place, (per_ms, total, window_ms) in enumerate(zip(allowed, totals, windows_ms, strict=True)):
        if per_ms == _INFINITE:
            continue
        above, margin = total - per_ms * window_ms, MARGIN_MS * per_ms
        more_ms = window_ms - shortest_ms
        is_filling = more_ms < size_ms and total > points[place][4]
        if -margin <= above <= margin or (is_filling and _falls_back(above, more_ms, size_ms, per_ms)):
            causes[place] = Cause.MARGIN
        elif -most <= above <= most and _could_swap(points, place, above):
            causes[place] = Cause.ORDER
    return causes


def _falls_back(above: float, more_ms: int, size_ms: int, per_ms: float) -> bool:
    """Whether the verdict flips because the window soon falls back to the shortest, or just did.

    While windows are missing (`Rate.windowSize`), it grows by the length of a sample and falls back.
    """
    if more_ms <= MARGIN_MS:
        return 0 < above < size_ms * per_ms
    return size_ms - MARGIN_MS <= more_ms < size_ms and -more_ms * per_ms < above <= 0


def _could_swap(points: Sequence[Point], place: int, above: float) -> bool:
    """Whether recording up to two neighbours of the same millisecond in another order flips the verdict.

    `above` is the amount beyond the limit (negative: below). A broker handles the requests of one connection one by
    one, in the order of their correlation ids. So only requests of other connections can change places with this one.
    Neighbours in another second are left out, so that the answer does not depend on which seconds are in one batch.
    """
    time_ms, _, connection, correlation, *_ = points[place]
    second_ms = time_ms // 1_000 * 1_000
    without, left = above, 2
    for other in reversed(points[max(place - 9, 0) : place]):
        if time_ms - other[0] > 1 or other[0] < second_ms or not left:
            break
        if other[2] != connection or other[3] > correlation:
            left -= 1
            without -= other[4]
            if (without > 0) != (above > 0):
                return True
    beyond, left = above, 2
    for other in points[place + 1 : place + 10]:
        if other[0] - time_ms > 1 or other[0] >= second_ms + 1_000 or not left:
            break
        if other[2] != connection or other[3] < correlation:
            left -= 1
            beyond += other[4]
            if (beyond > 0) != (above > 0):
                return True
    return False


def mark_edges(causes: list[Cause | None], points: Sequence[Point], governing: Sequence[Governing]) -> None:
    """Mark requests close to an edit of their quota, in the same second as one, or in a gap of the log."""
    for place, each in enumerate(governing):
        if each[4] or each[1] or each[2] is not None:
            causes[place] = edge_of(each, points[place][0]) or causes[place]


def mark_unsized(
    causes: list[Cause | None],
    points: Sequence[Point],
    allowed: Sequence[float],
    unsized_ms: int,
    horizon_ms: int,
) -> int:
    """Mark requests under a limit that may have a request of unknown size in their ring.

    Requests are marked from the beginning of that request's second, so that the order within a few milliseconds does
    not matter.

    Args:
        causes: one per request; changed in place.
        points: the requests.
        allowed: limit of each request, amount per ms.
        unsized_ms: time of the last request without a size before these, epoch ms; 0 for none.
        horizon_ms: how long a ring remembers (ms).

    Returns:
        Time of the last request without a size (epoch ms), `unsized_ms` if there is none among these.
    """
    found_ms = [point[0] for point in points if point[6] >= _SHARE_FETCH]
    seconds = {time_ms // 1_000 for time_ms in found_ms}
    for place, (time_ms, _, _, _, _, _, kind, _) in enumerate(points):
        if kind >= _SHARE_FETCH:
            unsized_ms = time_ms
        is_in_ring = unsized_ms and time_ms - unsized_ms < horizon_ms
        if allowed[place] != _INFINITE and (is_in_ring or time_ms // 1_000 in seconds):
            causes[place] = Cause.UNSIZED
    return unsized_ms
