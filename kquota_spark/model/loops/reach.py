"""Which buckets a change of quotas can reach: the others keep their recorded throttles, and need no closed loop.

The closed loop begins with the recorded times. While a request keeps its throttle, the next one keeps its time.
So a loop in which no verdict changes at the recorded times changes nothing at all. Then also a client that always waits
sends no more under a higher limit.
Fetches are the exception, because another limit also changes what a fetch gets:

* A throttled fetch came back empty, and is sent again as if it was not.
* A fetch that is larger than what the new limit allows for one is cut to that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kquota_spark.model.loops.open_loop import THROTTLED_FETCHES, Judged
from kquota_spark.model.loops.tried import Key
from kquota_spark.model.measure.combining import fetch_max_bytes
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType


def reached(
    was: Mapping[Key, Sequence[Judged]],
    tried: Mapping[Key, Sequence[Judged]],
    changed: Collection[Key],
    ring: RateConfig,
) -> set[Key]:
    """The changed buckets in which a closed loop can differ from the record. It also needs all that they are linked to.

    Args:
        was: the requests by bucket under the recorded quotas, of clients that are judged together.
        tried: the same requests by bucket under the tried quotas.
        changed: the buckets of `tried` that have another limit, or that the recorded quotas do not make.
        ring: the broker's sample ring.
    """
    if not changed:
        return set()
    fetches = [tried[key] for key in tried if key[0] is QuotaType.FETCH]
    if any(_is_open(of_bucket, ring) for of_bucket in fetches):
        return set(changed)
    is_calm = not any(each.at_most_ms or each.throttle_ms for of_bucket in was.values() for each in of_bucket)
    return {key for key in changed if not _is_same(was.get(key, ()), tried[key], is_calm=is_calm)}


def _is_open(of_bucket: Sequence[Judged], ring: RateConfig) -> bool:
    """Whether a fetch may get other bytes than recorded."""
    return any(
        each.point.kind in THROTTLED_FETCHES
        or fetch_max_bytes(each.point.amount, each.limit_per_s, ring) < each.point.amount
        for each in of_bucket
    )


def _is_same(was: Sequence[Judged], tried: Sequence[Judged], *, is_calm: bool) -> bool:
    """Whether all requests of a bucket have their recorded throttles; other rules make other buckets."""
    if len(was) != len(tried) or any(
        before.point is not after.point for before, after in zip(was, tried, strict=True)
    ):
        return is_calm and not any(each.at_most_ms or each.throttle_ms for each in tried)
    return all(before[3:5] == after[3:5] for before, after in zip(was, tried, strict=True))
