"""From verdicts to decisions: one row a second of a bucket. The job and the offline replay share this fold.

Which replay judges which type of quota follows the broker's own four managers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from kquota_spark.model.measure.points import UNSIZED_KINDS, Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.model.replay.mutation_replay import FORGET_AFTER_MS, MutationReplay
from kquota_spark.model.replay.replay import BucketReplay, Governing, Outcome, Verdict
from kquota_spark.model.replay.request_replay import RequestReplay

Replay = BucketReplay | RequestReplay | MutationReplay
"""State of one bucket, moved on by the requests of whole seconds."""


def replay_of(quota_type: QuotaType, config: RateConfig, state: Any = None) -> Replay:
    """A bucket that has seen nothing, or that resumes from the `state` of such a replay.

    `config` is that of quota.window.*, for controller mutations of controller.quota.window.*.
    """
    if quota_type is QuotaType.REQUEST:
        return RequestReplay(config, state)
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return MutationReplay(config, state)
    return BucketReplay(config, state)


def remembers_ms(quota_type: QuotaType, config: RateConfig) -> int:
    """After a pause of so long a bucket is as good as new."""
    return FORGET_AFTER_MS if quota_type is QuotaType.CONTROLLER_MUTATION else config.horizon_ms


def model_name(quota_type: QuotaType, config: RateConfig) -> str:
    """Short text for tables, e.g. `3.8+/11x1000ms`, `tokens/11x1000ms`."""
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"tokens/{config.num_samples}x{config.window_ms}ms"
    return config.name


MAX_NAMES = 20
_UNSIZED = tuple(map(int, UNSIZED_KINDS))


class Stretch(NamedTuple):
    """Requests of one (user, client id) in one second under one rule: a row of `usage` after GOVERN."""

    second_ms: int
    user: str
    client_id: str
    governing: Governing
    level: int | None
    rule: str | None
    rule_version: int | None
    points: Sequence[Point]


@dataclass(slots=True)
class Decision:
    """One second of one bucket; the fields are columns of `decisions`, see there for their meaning."""

    second_ms: int
    level: int | None = None
    rule: str | None = None
    rule_version: int | None = None
    limit_per_s: float | None = None
    rate_per_s: float = 0.0
    rate_at_most_per_s: float | None = None
    quota_used_percent: float | None = None
    amount: int = 0
    requests: int = 0
    throttle_ms: int = 0
    observed_throttle_ms: int = 0
    throttled_requests: int = 0
    observed_throttled_requests: int = 0
    total_throttle_ms: int = 0
    late: int = 0
    agreement: Agreement = field(default_factory=Agreement)
    users: list[str] = field(default_factory=list)
    client_ids: list[str] = field(default_factory=list)
    observed_total_throttle_ms: int = 0
    unsized_requests: int = 0

    @property
    def is_certain(self) -> bool:
        """No request is uncertain or late."""
        return not (self.agreement.uncertain or self.late)


def judge_bucket(
    replay: Replay, stretches: Iterable[Stretch], verdicts: list[Verdict] | None = None
) -> list[Decision]:
    """Fold the seconds of one bucket, in order of time, into decisions.

    Args:
        replay: state of the bucket; moved on.
        stretches: in any order, but all there is of each second: a second already folded comes out as late.
        verdicts: if given, every verdict is appended.
    """
    decisions: list[Decision] = []
    seconds: list[tuple[int, list[Stretch], list[int]]] = []
    points: list[Point] = []
    governing: list[Governing] = []
    ordered = sorted(stretches, key=attrgetter("second_ms"))
    for second_ms, group in groupby(ordered, key=attrgetter("second_ms")):
        of_second = list(group)
        if second_ms < replay.folded_through_ms:
            decisions.append(_late(second_ms, of_second))
            continue
        entries = sorted(
            (point, index) for index, stretch in enumerate(of_second) for point in stretch.points
        )
        points += [point for point, _ in entries]
        governing += [of_second[index].governing for _, index in entries]
        seconds.append((second_ms, of_second, [index for _, index in entries]))
    judged = replay.judge(points, governing)
    start = 0
    for second_ms, of_second, indexes in seconds:
        end = start + len(indexes)
        decisions.append(_decision(second_ms, of_second, indexes, judged[start:end]))
        start = end
    if verdicts is not None:
        verdicts += judged
    return decisions


def _late(second_ms: int, of_second: Sequence[Stretch]) -> Decision:
    decision = Decision(second_ms, late=sum(len(stretch.points) for stretch in of_second))
    _add_names(decision, of_second)
    return decision


def _add_names(decision: Decision, of_second: Sequence[Stretch]) -> None:
    decision.users = sorted({stretch.user for stretch in of_second})[:MAX_NAMES]
    decision.client_ids = sorted({stretch.client_id for stretch in of_second})[:MAX_NAMES]


def _decision(
    second_ms: int, of_second: Sequence[Stretch], indexes: Sequence[int], judged: Sequence[Verdict]
) -> Decision:
    """Sums over the second; rate, limit and rule are those of the request furthest above (or below) its limit."""
    decision = Decision(second_ms)
    worst, worst_share, worst_rate = 0, -1.0, -1.0
    for place, (point, governing, rate, _, throttle_ms, outcome, _, at_most) in enumerate(judged):
        if throttle_ms:
            decision.throttled_requests += 1
            decision.total_throttle_ms += throttle_ms
            decision.throttle_ms = max(decision.throttle_ms, throttle_ms)
        observed_ms, limit = point[5], governing[0]
        # Of two quotas the broker logs the longer throttle. It is not this one's if the rate cannot reach the limit.
        if observed_ms and (
            outcome is not Outcome.EXCLUDED
            or throttle_ms
            or (limit is not None and at_most is not None and at_most > limit)
        ):
            decision.observed_throttled_requests += 1
            decision.observed_total_throttle_ms += observed_ms
            decision.observed_throttle_ms = max(decision.observed_throttle_ms, observed_ms)
        share = rate / limit if limit else 0.0
        if share > worst_share or (share == worst_share and rate > worst_rate):
            worst, worst_share, worst_rate = place, share, rate
    decision.agreement.add_all(judged)
    top, stretch = judged[worst], of_second[indexes[worst]]
    decision.requests = len(judged)
    decision.amount = sum(verdict[0][4] for verdict in judged)
    decision.unsized_requests = sum(verdict[0][6] in _UNSIZED for verdict in judged)
    decision.rate_per_s, decision.rate_at_most_per_s = top.rate_per_s, top.rate_at_most_per_s
    decision.limit_per_s = top.governing.limit_per_s
    if decision.limit_per_s:
        decision.quota_used_percent = 100.0 * top.rate_per_s / decision.limit_per_s
    decision.level, decision.rule, decision.rule_version = stretch.level, stretch.rule, stretch.rule_version
    _add_names(decision, of_second)
    return decision
