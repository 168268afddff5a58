"""Why a verdict differs from the broker's, for the list that `kquota replay --show wrong` prints."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from kquota_spark.model.replay.replay import Verdict

_TRIALS = 64
_NOISES_MS = (5, 25, 100)
"""A few ms are the log's own precision; more happens when the broker pauses between its stages."""
_CONCURRENT_MS = 5
_LOOK_BACK_WINDOWS = 3


def cause_of(verdicts: Sequence[Verdict], index: int, config: RateConfig) -> str:
    """The likely cause of a wrong verdict.

    Args:
        verdicts: all verdicts of the bucket, in order.
        index: the wrong one.
        config: sample ring of the broker.
    """
    wrong = verdicts[index]
    if wrong.cause is not None:
        return wrong.cause.value
    time_ms = wrong.point.record_time_ms
    nearby = verdicts[max(0, index - 20) : index + 20]
    if any(
        other.point.kind == PointKind.THROTTLED_FETCH
        and abs(other.point.record_time_ms - time_ms) <= _CONCURRENT_MS
        for other in nearby
    ):
        return "a throttled fetch of the bucket overlapped: its bytes counted until they were un-recorded"
    for noise_ms in _NOISES_MS:
        if _flips_under_noise(verdicts, index, config, noise_ms):
            return f"record times off by up to {noise_ms} ms, in another order, give the broker's verdict"
    return "not explained by the clock: check window settings, broker version and quotas"


def _flips_under_noise(verdicts: Sequence[Verdict], index: int, config: RateConfig, noise_ms: int) -> bool:
    """Whether some small shift of the record times, requests changing places included, gives the other verdict."""
    target = verdicts[index]
    horizon_ms = _LOOK_BACK_WINDOWS * config.horizon_ms
    first = index
    while first > 0 and target.point.record_time_ms - verdicts[first - 1].point.record_time_ms < horizon_ms:
        first -= 1
    # A few requests behind the wrong one may have been recorded before it.
    part = verdicts[first : index + 8]
    random = Random(target.point.record_time_ms)  # noqa: S311 - reproducible noise, not a secret
    for _ in range(_TRIALS):
        shifted = sorted(
            (v.point.record_time_ms + random.randint(-noise_ms, noise_ms), place)
            for place, v in enumerate(part)
        )
        ring = SampleRing(config)
        for time_ms, place in shifted:
            window_ms = ring.record(part[place].point.amount, time_ms)
            if place == index - first:
                is_throttled = throttle_time_ms(ring.total, window_ms, target.governing.limit_per_s) > 0
                if is_throttled == (target.point.observed_throttle_ms > 0):
                    return True
                break
    return False
