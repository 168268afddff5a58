"""How well the replay agrees with the broker: the counts that the offline command, the job and the reports share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from kquota_spark.model.replay.causes import Cause
from kquota_spark.model.replay.replay import Outcome, Verdict

NEAR_LIMIT = 0.05


@dataclass(slots=True)
class Agreement:
    """Counts over verdicts.

    * `requests_judged`: those that could be compared with the broker and were certain. `throttled_by_broker`,
      `throttled_by_model`, `agreeing`, `false_positive`, `false_negative` and `near_limit` count only these.
    * `uncertain`: counted separately, with those of them that differ (`uncertain_wrong`).
    * `inferred`: throttled fetches.
    * `excluded`: requests with a throttle that may come from another quota.
    * `throttle_errors_ms`: replay minus logged throttle of judged requests, if both throttled.
    * `window_off`: uncertain only because earlier throttles showed another window than the times in the log
      (`Cause.LOG_TIMES`). They count when the settings are compared with the broker's. Otherwise the broker's own
      throttles would hide that the settings differ.
    """

    requests_judged: int = 0
    throttled_by_broker: int = 0
    throttled_by_model: int = 0
    agreeing: int = 0
    false_positive: int = 0
    false_negative: int = 0
    near_limit: int = 0
    uncertain: int = 0
    uncertain_wrong: int = 0
    inferred: int = 0
    excluded: int = 0
    throttle_errors_ms: list[int] = field(default_factory=list)
    window_off: int = 0
    window_off_false_positive: int = 0
    window_off_false_negative: int = 0

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        point, governing, rate, _, throttle_ms, outcome, _, _ = verdict
        if outcome is Outcome.AGREES:
            self.agreeing += 1
        elif outcome is Outcome.FALSE_POSITIVE:
            self.false_positive += 1
        elif outcome is Outcome.FALSE_NEGATIVE:
            self.false_negative += 1
        else:
            self._add_not_judged(verdict)
            return
        observed_ms, limit = point.observed_throttle_ms, governing.limit_per_s
        self.requests_judged += 1
        self.throttled_by_broker += observed_ms > 0
        self.throttled_by_model += throttle_ms > 0
        if limit:
            self.near_limit += abs(rate - limit) <= NEAR_LIMIT * limit
        if observed_ms > 0 and throttle_ms > 0:
            self.throttle_errors_ms.append(throttle_ms - observed_ms)

    def _add_not_judged(self, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.INFERRED:
            self.inferred += 1
        elif verdict.outcome is Outcome.EXCLUDED:
            self.excluded += 1
        else:
            self.uncertain += 1
            self.uncertain_wrong += verdict.is_wrong
            if verdict.cause is Cause.LOG_TIMES:
                self.window_off += 1
                self.window_off_false_positive += verdict.is_wrong and verdict.throttle_ms > 0
                self.window_off_false_negative += verdict.is_wrong and verdict.throttle_ms == 0

    def add_all(self, verdicts: Iterable[Verdict]) -> None:
        """Count many verdicts. Most agree that nothing is throttled, and are counted without a call each."""
        quiet = 0
        for verdict in verdicts:
            _, governing, rate, _, throttle_ms, outcome, _, _ = verdict
            if throttle_ms or outcome is not Outcome.AGREES:
                self.add(verdict)
                continue
            quiet += 1
            limit = governing[0]
            if limit and abs(rate - limit) <= NEAR_LIMIT * limit:
                self.near_limit += 1
        self.requests_judged += quiet
        self.agreeing += quiet

    def as_dict(self) -> dict[str, object]:
        """The JSON form: counts, and the size of the throttle error in ms."""
        found: dict[str, object] = {each.name: getattr(self, each.name) for each in fields(self)}
        del found["throttle_errors_ms"]
        return {**found, "throttle_error_ms": error_summary(self.throttle_errors_ms)}


def error_summary(errors_ms: Sequence[int]) -> dict[str, int | None]:
    """Median, p90, p99 and max (ms) of the absolute errors, by nearest rank; None if there are no errors."""
    sizes = sorted(abs(error) for error in errors_ms)

    def rank(share: float) -> int | None:
        return sizes[max(0, -(-len(sizes) * round(share * 100) // 100) - 1)] if sizes else None

    return {"median": rank(0.5), "p90": rank(0.9), "p99": rank(0.99), "max": sizes[-1] if sizes else None}
