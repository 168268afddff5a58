"""From verdicts to decisions: one row per bucket and second. The job and the offline replay share this fold.

Each type of quota has its own replay, as each has its own manager in the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from kquota_spark.model.measure.points import UNSIZED_KINDS, Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.measure.throttle_time import rate_per_s
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.agreement import NEAR_LIMIT, Agreement
from kquota_spark.model.replay.causes import Cause, Governing, RuleLimit
from kquota_spark.model.replay.edits import other_limit_in_force
from kquota_spark.model.replay.mutation_replay import FORGET_AFTER_MS, MutationReplay
from kquota_spark.model.replay.replay import BucketReplay, Outcome, Quiet, State, Verdict, first_request
from kquota_spark.model.replay.request_replay import RequestReplay

Replay = BucketReplay | RequestReplay | MutationReplay
"""State of one bucket, advanced by the requests of whole seconds."""


def replay_of(quota_type: QuotaType, config: RateConfig, state: Any = None) -> Replay:
    """The replay of a new bucket, or of one that resumes from the `state` of such a replay.

    `config` has the settings of quota.window.*, or of controller.quota.window.* for controller mutations.
    """
    if quota_type is QuotaType.REQUEST:
        return RequestReplay(config, state)
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return MutationReplay(config, state)
    return BucketReplay(config, state)


def remembers_ms(quota_type: QuotaType, config: RateConfig) -> int:
    """The length of a pause (ms) after which a bucket equals a new one."""
    return FORGET_AFTER_MS if quota_type is QuotaType.CONTROLLER_MUTATION else config.horizon_ms


def model_name(quota_type: QuotaType, config: RateConfig) -> str:
    """Short text for tables, e.g. `3.8+/11x1000ms`, `tokens/11x1000ms`."""
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"tokens/{config.num_samples}x{config.window_ms}ms"
    return config.name


MAX_NAMES = 20
_UNSIZED = tuple(map(int, UNSIZED_KINDS))


class GovernedSecond(NamedTuple):
    """Requests of one (user, client id) in one second under one rule: a row of `usage` after the stage GOVERN."""

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
    """One second of one bucket; the fields are columns of `decisions`, which documents their meaning."""

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
        """Whether no request is uncertain or late."""
        return not (self.agreement.uncertain or self.late)


class QuietSecond(NamedTuple):
    """One second of one bucket in which all requests are quiet (`replay.Quiet`), as in nearly all seconds of an audit.

    The rule and the rate are those of the request that uses the largest share of its limit.
    """

    second_ms: int
    governed: GovernedSecond
    rate_per_s: float
    amount: int
    requests: int
    near_limit: int
    users: list[str]
    client_ids: list[str]

    @property
    def decision(self) -> Decision:
        """The second in the form of any other second."""
        governed, limit = self.governed, self.governed.governing.limit_per_s
        counts = Agreement(self.requests, agreeing=self.requests, near_limit=self.near_limit)
        return Decision(
            self.second_ms, governed.level, governed.rule, governed.rule_version, limit, self.rate_per_s,
            quota_used_percent=used_percent(self.rate_per_s, limit), amount=self.amount, requests=self.requests,
            agreement=counts, users=self.users, client_ids=self.client_ids,
        )  # fmt: skip


def used_percent(rate_per_s: float, limit_per_s: float | None) -> float | None:
    """The rate in percent of the limit; None if there is no limit, or it is 0."""
    return 100.0 * rate_per_s / limit_per_s if limit_per_s else None


def judge_bucket(
    replay: Replay, governed_seconds: Iterable[GovernedSecond], verdicts: list[Verdict] | None = None
) -> list[Decision]:
    """Fold the seconds of one bucket into decisions, in order of time.

    `replay` is the state of the bucket, and is advanced. The rows of usage may be in any order, but must contain all
    rows of each second: rows of a second already folded count as late. If `verdicts` is given, every verdict is
    appended to it.
    """
    found = judge_seconds(replay, list(governed_seconds), verdicts)
    return [each.decision if isinstance(each, QuietSecond) else each for each in found]


def judge_seconds(
    replay: Replay, governed_seconds: Sequence[GovernedSecond], verdicts: list[Verdict] | None = None
) -> list[Decision | QuietSecond]:
    """Do the same as `judge_bucket` with as few objects as possible, for an audit with many buckets."""
    if len(governed_seconds) == 1 and governed_seconds[0][0] >= replay.folded_through_ms:
        return _judged_alone(replay, governed_seconds[0], verdicts)
    decisions: list[Decision | QuietSecond] = []
    seconds: list[tuple[int, list[GovernedSecond], list[int]]] = []
    points: list[Point] = []
    governing: list[Governing] = []
    ordered = sorted(governed_seconds, key=attrgetter("second_ms"))
    for second_ms, group in groupby(ordered, key=attrgetter("second_ms")):
        of_second = list(group)
        if second_ms < replay.folded_through_ms:
            decisions.append(_late(second_ms, of_second))
            continue
        entries = sorted(
            (point, index) for index, governed in enumerate(of_second) for point in governed.points
        )
        points += [point for point, _ in entries]
        governing += [of_second[index].governing for _, index in entries]
        seconds.append((second_ms, of_second, [index for _, index in entries]))
    judged = _judged(replay, points, governing, verdicts)
    start = 0
    for second_ms, of_second, indexes in seconds:
        end = start + len(indexes)
        if isinstance(judged, Quiet):
            part = Quiet(judged.totals[start:end], judged.windows_ms[start:end])
            decisions.append(_quiet(second_ms, of_second, indexes, points[start:end], part))
        else:
            decisions.append(_decision(second_ms, of_second, indexes, judged[start:end]))
        start = end
    return decisions


def _judged_alone(
    replay: Replay, governed: GovernedSecond, verdicts: list[Verdict] | None
) -> list[Decision | QuietSecond]:
    """Judge a single second of one client under one rule, as nearly all are if there are many clients."""
    points = sorted(governed.points) if len(governed.points) > 1 else governed.points
    if verdicts is None and isinstance(replay, BucketReplay):
        judged = replay.judge_alike(points, governed.governing)
    else:
        judged = _judged(replay, points, [governed.governing] * len(points), verdicts)
    if isinstance(judged, Quiet):
        return [_quiet_alone(governed, points, judged)]
    return [_decision(governed.second_ms, [governed], [0] * len(points), judged)]


def judge_first(config: RateConfig, governed: GovernedSecond) -> tuple[State, QuietSecond] | None:
    """The state and the first second of a new bandwidth bucket; None unless the second is one quiet request.

    The result equals that of `judge_seconds` with a new replay; see `replay.first_request`.
    """
    points = governed[7]
    found = first_request(config, points[0], governed[3]) if len(points) == 1 else None
    if found is None:
        return None
    state, judged = found
    return state, _quiet_alone(governed, points, judged)


def _quiet_alone(governed: GovernedSecond, points: Sequence[Point], judged: Quiet) -> QuietSecond:
    """A quiet second of one client under one rule."""
    rates, limit = list(map(rate_per_s, *judged)), governed[3][0]
    top = max(rates)
    near = _near(rates, limit) if limit and top >= (1.0 - 2.0 * NEAR_LIMIT) * limit else 0
    amount = sum([point[4] for point in points])
    names = [governed[1]], [governed[2]]
    return _quiet_second(QuietSecond, (governed[0], governed, top, amount, len(points), near, *names))


_quiet_second = tuple.__new__  # three times as fast as the constructor, as in `replay`


def _near(rates_per_s: Iterable[float], limit_per_s: float | None) -> int:
    """The number of rates near the limit."""
    if not limit_per_s:
        return 0
    within = NEAR_LIMIT * limit_per_s
    return sum([abs(rate - limit_per_s) <= within for rate in rates_per_s])


def _quiet(
    second_ms: int,
    of_second: Sequence[GovernedSecond],
    indexes: Sequence[int],
    points: Sequence[Point],
    judged: Quiet,
) -> QuietSecond:
    """The same as `_decision`, for quiet requests."""
    near, worst, worst_share, worst_rate = 0, of_second[0], -1.0, -1.0
    for index, total, window_ms in zip(indexes, judged.totals, judged.windows_ms, strict=True):
        governed, rate = of_second[index], rate_per_s(total, window_ms)
        limit = governed.governing[0]
        near += _near((rate,), limit)
        share = rate / limit if limit else 0.0
        if share > worst_share or (share == worst_share and rate > worst_rate):
            worst, worst_share, worst_rate = governed, share, rate
    amount = sum([point[4] for point in points])
    return QuietSecond(second_ms, worst, worst_rate, amount, len(points), near, *_names(of_second))


def _judged(
    replay: Replay,
    points: Sequence[Point],
    governing: Sequence[Governing],
    verdicts: list[Verdict] | None,
) -> list[Verdict] | Quiet:
    if verdicts is None and isinstance(replay, BucketReplay):
        return replay.judge_quickly(points, governing)
    judged = replay.judge(points, governing)
    if verdicts is not None:
        verdicts += judged
    return judged


def _late(second_ms: int, of_second: Sequence[GovernedSecond]) -> Decision:
    decision = Decision(second_ms, late=sum(len(governed.points) for governed in of_second))
    decision.users, decision.client_ids = _names(of_second)
    return decision


def _names(of_second: Sequence[GovernedSecond]) -> tuple[list[str], list[str]]:
    """Users and client ids of the second, at most `MAX_NAMES` each."""
    users, client_ids = (
        {governed.user for governed in of_second},
        {governed.client_id for governed in of_second},
    )
    return sorted(users)[:MAX_NAMES], sorted(client_ids)[:MAX_NAMES]


def _decision(
    second_ms: int, of_second: Sequence[GovernedSecond], indexes: Sequence[int], judged: Sequence[Verdict]
) -> Decision:
    """Sums over the second; rate, limit and rule are those of the request with the largest share of its limit."""
    decision = Decision(second_ms)
    worst, worst_share, worst_rate = 0, -1.0, -1.0
    others: dict[int, RuleLimit] = {}
    for place, verdict in enumerate(judged):
        point, governing, rate, _, throttle_ms, outcome, cause, at_most = verdict
        if throttle_ms:
            decision.throttled_requests += 1
            decision.total_throttle_ms += throttle_ms
            decision.throttle_ms = max(decision.throttle_ms, throttle_ms)
        observed_ms, limit = point[5], governing[0]
        # The broker logs the longer throttle of two quotas. It is not this quota's if the rate cannot reach the limit.
        if observed_ms and (
            outcome is not Outcome.EXCLUDED
            or throttle_ms
            or (limit is not None and at_most is not None and at_most > limit)
        ):
            decision.observed_throttled_requests += 1
            decision.observed_total_throttle_ms += observed_ms
            decision.observed_throttle_ms = max(decision.observed_throttle_ms, observed_ms)
        if cause is Cause.RULE_EDGE and (other := other_limit_in_force(verdict)) is not None:
            others[place], limit = other, other.limit_per_s
        share = rate / limit if limit else 0.0
        if share > worst_share or (share == worst_share and rate > worst_rate):
            worst, worst_share, worst_rate = place, share, rate
    decision.agreement.add_all(judged)
    top, governed = judged[worst], of_second[indexes[worst]]
    decision.requests = len(judged)
    decision.amount = sum(verdict[0][4] for verdict in judged)
    decision.unsized_requests = sum(verdict[0][6] in _UNSIZED for verdict in judged)
    decision.rate_per_s, decision.rate_at_most_per_s = top.rate_per_s, top.rate_at_most_per_s
    by_rules = RuleLimit(top.governing.limit_per_s, governed.level, governed.rule, governed.rule_version)
    decision.limit_per_s, decision.level, decision.rule, decision.rule_version = others.get(worst, by_rules)
    decision.quota_used_percent = used_percent(top.rate_per_s, decision.limit_per_s)
    decision.users, decision.client_ids = _names(of_second)
    return decision
