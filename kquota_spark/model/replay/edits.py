"""Which of the two limits around an edit the broker used for a request, as the throttle in its log shows.

A broker applies an edit some milliseconds after the time in the rules table. Verdicts near that time are uncertain. But
`throttle = total / limit - window` (`ClientQuotaManager.throttleTime`), so the logged throttle fits one of the two
limits. A cut of a quota shows it best: the first request after the cut is often throttled for many seconds, which the
limit before it would never do.

This names the limit in tables. The verdict itself stays that of the rules table, and uncertain: the answer to a request
is never used for its own verdict.
"""

from __future__ import annotations

from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from kquota_spark.model.replay.causes import Cause, RuleLimit, is_after_edit, is_before_edit
from kquota_spark.model.replay.replay import Verdict

WITHIN_MS = 100
"""Largest difference (ms) between a logged throttle and that of a limit that fits. Busy brokers log that late."""
WITHIN_SHARE = 0.05
"""The same as a share of the logged throttle: of a window of 11 s, a sample that began at another time moves 1 s."""
_MEASURED = (int(PointKind.PRODUCE), int(PointKind.FETCH))


def other_limit_in_force(verdict: Verdict) -> RuleLimit | None:
    """The limit before or after an edit close by, if the logged throttle fits only that one; otherwise None."""
    point, governing = verdict.point, verdict.governing
    if (
        verdict.cause is not Cause.RULE_EDGE
        or point.kind not in _MEASURED
        or _fits(governing.limit_per_s, verdict)
    ):
        return None
    others = []
    if governing.before is not None and is_after_edit(governing, point.record_time_ms):
        others.append(governing.before)
    if governing.after is not None and is_before_edit(governing, point.record_time_ms):
        others.append(governing.after)
    fitting = [each for each in others if _fits(each.limit_per_s, verdict)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(limit_per_s: float | None, verdict: Verdict) -> bool:
    total = verdict.rate_per_s * verdict.window_ms / 1_000
    expected_ms = max(throttle_time_ms(total, verdict.window_ms, limit_per_s), 0)
    observed_ms = verdict.point.observed_throttle_ms
    return abs(expected_ms - observed_ms) <= max(WITHIN_MS, WITHIN_SHARE * observed_ms)
