"""One shard of the state on a worker: some buckets of all quota managers, each with its replay and stored state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise, repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from kquota_spark.model.loops.shadow_bucket import ShadowLimit
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.replay.decision import (
    Decision,
    GovernedSecond,
    QuietSecond,
    Replay,
    judge_first,
    judge_seconds,
    model_name,
    replay_of,
)
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.pipeline.packed_points import compressed, decompressed, points_of
from kquota_spark.pipeline.sent import (
    BucketTags,
    Manager,
    Packed,
    Sent,
    governed_second_of,
    manager_of,
    manager_text,
)
from kquota_spark.pipeline.shadow.shard import EnforcedBuckets, ShadowShard
from kquota_spark.schema.columns import STATE_FORM
from kquota_spark.schema.decision_columns import FROM_AGREEMENT, FROM_DECISION

_named_config = cache(RateConfig.parse)
_pair = tuple.__new__  # three times as fast as the constructor
_encoded, _decoded = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class Configs(NamedTuple):
    """Windows of the brokers' quotas: of the sampled rates, for rows that name no others, and of mutations."""

    sampled: RateConfig
    mutations: RateConfig

    def of(self, quota_type: QuotaType, rate_config: str | None) -> RateConfig:
        """The windows of a row."""
        if quota_type is QuotaType.CONTROLLER_MUTATION:
            return self.mutations
        return self.sampled if rate_config is None else _named_config(rate_config)


class Judged(NamedTuple):
    """One second of the bucket, and the model that judged it."""

    second: Decision | QuietSecond
    model_variant: str

    @property
    def decision(self) -> Decision:
        """The second as a decision."""
        return self.second.decision if isinstance(self.second, QuietSecond) else self.second


class BucketJudge:
    """Judges the rows of one bucket, with the settings that its broker has at the time; continues from a `state`."""

    __slots__ = ("_configs", "_quota_type", "_replay", "config")

    def __init__(
        self,
        quota_type: QuotaType,
        configs: Configs,
        state: bytes | None = None,
        rate_config: str | None = None,
    ) -> None:
        """Without a state, the judge begins with the windows of this name."""
        self._quota_type, self._configs = quota_type, configs
        if state is None:
            self.config, replay = configs.of(quota_type, rate_config), None
        else:
            name, replay = _decoded(state)
            self.config = _named_config(name)
        self._replay: Replay = replay_of(quota_type, self.config, replay)

    def judge(self, rows: Iterable[Sent], verdicts: list[Verdict] | None = None) -> list[Judged]:
        """Judge whole seconds; a second that was judged before is returned as late.

        If `verdicts` is given, every verdict is appended to it.
        """
        judged: list[Judged] = []
        ordered = sorted(rows, key=attrgetter("second_ms"))
        for name, group in groupby(ordered, key=attrgetter("rate_config")):
            judged += self.judge_governed(name, list(map(governed_second_of, group)), verdicts)
        return judged

    def judge_governed(
        self,
        rate_config: str | None,
        governed_seconds: Sequence[GovernedSecond],
        verdicts: list[Verdict] | None = None,
    ) -> list[Judged]:
        """Judge whole seconds that have the same windows, in order; see `judge`."""
        config = self._configs.of(self._quota_type, rate_config)
        if self.config is not config:
            self._take(config, governed_seconds[-1].second_ms)
        variant = model_name(self._quota_type, self.config)
        seconds = judge_seconds(self._replay, governed_seconds, verdicts)
        return [_pair(Judged, (second, variant)) for second in seconds]

    def _take(self, config: RateConfig, second_ms: int) -> None:
        """Change the windows: a broker does so only at its start, with empty rings. Late rows change nothing."""
        folded_through_ms = self._replay.folded_through_ms
        if self.config != config and second_ms >= folded_through_ms:
            self.config, self._replay = config, replay_of(self._quota_type, config)
            self._replay.folded_through_ms = folded_through_ms

    @property
    def folded_through_ms(self) -> int:
        """Time before which everything is judged, epoch ms."""
        return self._replay.folded_through_ms

    @property
    def forget_at_ms(self) -> int:
        """Time (epoch ms) from which a new judge gives the same verdicts, if no request comes before."""
        return self._replay.forget_at_ms

    @property
    def memory(self) -> object:
        """Everything that is known of the past, in a form that can be compared."""
        return self.config, self._replay.memory

    @property
    def state(self) -> bytes:
        """The state as MessagePack."""
        return _encoded((self.config.name, self._replay.state))


def warm_start(
    seconds_ms: Iterable[int], from_ms: int, horizon_ms: int, warm_from_ms: int, *, is_from_beginning: bool
) -> tuple[int, bool]:
    """Where a replay of a bucket begins, so that its ring is the broker's from `from_ms` on (all times in epoch ms).

    A ring is empty after a pause that is as long as it remembers. So the last such pause is far enough back.

    Args:
        seconds_ms: seconds of the bucket from `warm_from_ms` on and before `from_ms`, ascending.
        from_ms: the first second to judge.
        horizon_ms: the pause after which a ring equals a new one, ms; see `remembers_ms`.
        warm_from_ms: nothing older than that is known.
        is_from_beginning: whether nothing older exists.

    Returns:
        The start, and whether the ring was empty there.
    """
    start_ms, is_warm, last_ms = warm_from_ms, is_from_beginning, warm_from_ms
    for second_ms in (*seconds_ms, from_ms):
        if second_ms - last_ms >= horizon_ms:
            start_ms, is_warm = second_ms, True
        last_ms = second_ms + 1_000
    return start_ms, is_warm


def decided_values(judged: Judged, *, is_rules_behind: bool) -> tuple[Any, ...]:
    """The values of `DECIDED_NAMES` of one judged second."""
    decision = judged.decision
    is_certain = decision.is_certain and not is_rules_behind
    return (
        *_of_decision(decision), *_of_agreement(decision.agreement), is_rules_behind, is_certain, judged.model_variant,
        "log", decision.second_ms,
    )  # fmt: skip


def is_behind(known_through_ms: int | None, second_ms: int) -> bool:
    """Whether quota changes were not known through a second, from the time up to which they were (epoch ms)."""
    return known_through_ms is None or known_through_ms < second_ms + 1_000


_of_decision = attrgetter(*FROM_DECISION)
_of_agreement = attrgetter(*FROM_AGREEMENT.values())
DECIDED_NAMES = (
    *FROM_DECISION, *FROM_AGREEMENT, "is_rules_behind", "is_certain", "model_variant", "source", "second_ms",
)  # fmt: skip
"""Columns of a decision beside those of its bucket."""


class JudgedBucket(NamedTuple):
    """Judged seconds of one bucket, and the time (epoch ms) up to which their rules were known."""

    manager: Manager
    bucket: BucketTags
    judged: list[Judged]
    known_through_ms: int | None


_Row = tuple[GovernedSecond, str | None, int | None, ShadowLimit | None]
"""Points of one client in one second under one rule, the name of the windows, until when the rules are known, and the
limit by the shadow quotas; None without them, or if the points count in another bucket there."""


class _Kept(NamedTuple):
    """A bucket between two micro-batches; its state is decoded only when the bucket is used."""

    forget_at_ms: int
    state: bytes


_rate_config, _known_through_ms = itemgetter(1), itemgetter(2)
_Buckets = dict[BucketTags, _Kept]


class ShardJudge:
    """Judges the rows of all buckets of one shard, out of `shards`; continues from a `state`.

    A bucket depends on no other one, not even on those of its broker. What the buckets of a broker share (its windows,
    restarts, gaps of its log) comes with the rows.

    Raises:
        ValueError: another release wrote the state in a form that is not known here, or with another number of shards.
    """

    def __init__(self, configs: Configs, shards: int = 1, state: bytes | None = None) -> None:
        self._configs, self._shards = configs, shards
        self._kept: dict[str, _Buckets] = {}
        self.shadow: ShadowShard | None = None
        """The buckets under the shadow quotas; None without any."""
        if state is not None:
            self._kept, shadow = _restored(state, shards)
            self.shadow = ShadowShard(configs.of, shadow, self._kept) if shadow else None

    def judge(self, parts: Iterable[Packed]) -> list[JudgedBucket]:
        """Judge whole seconds; no later call has older ones.

        A bucket is forgotten if a new one gives the same verdicts from these seconds on. This includes the buckets of a
        broker that is gone, because the seconds of all brokers close at the same time.
        """
        parts, by_manager = [*parts], _Rows()
        for part in parts:
            _add_rows(part, by_manager)
        shadow, before = self._begun(parts), dict[str, _Buckets]()
        if parts:
            self._forget(min(part.oldest_ms for part in parts))
        if shadow is not None:
            before = {manager: dict(buckets) for manager, buckets in self._kept.items()}
            shadow.judge_moved([part.moved for part in parts if part.moved is not None], before)
        found: list[JudgedBucket] = []
        for manager, of_manager in by_manager.items():
            text = manager_text(*manager)
            kept = self._kept.setdefault(text, {})
            judged = [self._judged(manager, bucket, rows, kept) for bucket, rows in of_manager.items()]
            found += judged
            if shadow is not None:
                shadow.judge(EnforcedBuckets(text, manager, of_manager, judged), before.get(text, {}))
        if shadow is not None:
            shadow.finish()
        return found

    def _begun(self, parts: Sequence[Packed]) -> ShadowShard | None:
        """Continue with the shadow quotas of these seconds; None if they make no difference to any bucket."""
        if not any(part.counts or part.moved is not None for part in parts):
            return None
        shadows = [part.shadowed for part in parts if part.shadowed is not None]
        self.shadow = (self.shadow or ShadowShard(self._configs.of)) if shadows else None
        windows = {terms.rate_config for part in parts for terms in part.terms} | {None}
        if self.shadow is None or not self.shadow.begin(
            shadows, windows, has_moved=any(part.moved for part in parts)
        ):
            return None
        return self.shadow

    def _forget(self, oldest_ms: int) -> None:
        has_forgotten = False
        for manager, buckets in list(self._kept.items()):
            remembered = {bucket: kept for bucket, kept in buckets.items() if kept[0] > oldest_ms}
            has_forgotten = has_forgotten or len(remembered) < len(buckets)
            if remembered:
                self._kept[manager] = remembered
            else:
                del self._kept[manager]
        if self.shadow is not None:
            self.shadow.forget(oldest_ms, self._kept, has_forgotten=has_forgotten)

    def _judged(
        self, manager: Manager, bucket: BucketTags, rows: list[_Row], buckets: _Buckets
    ) -> JudgedBucket:
        kept = buckets.get(bucket)
        if kept is None and len(rows) == 1 and manager[2] in BANDWIDTH:
            governed, name, known_through_ms, _ = rows[0]
            config = self._configs.of(manager[2], name)
            first = judge_first(config, governed)
            if first is not None:
                state, second = first
                stored = _encoded((config.name, state))
                buckets[bucket] = _pair(_Kept, (state[0] + config.horizon_ms, stored))
                return _pair(
                    JudgedBucket, (manager, bucket, [_pair(Judged, (second, config.name))], known_through_ms)
                )
        judge = BucketJudge(manager[2], self._configs, None if kept is None else kept[1], rows[0][1])
        if len(rows) == 1:
            governed, name, known_through_ms, _ = rows[0]
            judged = judge.judge_governed(name, (governed,))
        else:
            judged = []
            for name, group in groupby(sorted(rows, key=_second_ms_of), key=_rate_config):
                judged += judge.judge_governed(name, [row[0] for row in group])
            known_through_ms = known_through_of(map(_known_through_ms, rows))
        buckets[bucket] = _pair(_Kept, (judge.forget_at_ms, judge.state))
        return _pair(JudgedBucket, (manager, bucket, judged, known_through_ms))

    @property
    def buckets(self) -> list[tuple[Manager, BucketTags]]:
        """The buckets that are remembered, each with its manager."""
        return [
            (manager_of(manager), bucket) for manager, buckets in self._kept.items() for bucket in buckets
        ]

    @property
    def state(self) -> bytes | None:
        """The state as bytes; None if nothing is remembered.

        The first number is the version of this form, the second one the number of shards. Columns take half the time of
        a map. A last value, if there is one, has the buckets under shadow quotas.
        """
        shadow = None if self.shadow is None else self.shadow.state_beside(self._kept)
        if not self._kept and shadow is None:
            return None
        managers = [
            (
                manager,
                [*buckets],
                [kept[0] for kept in buckets.values()],
                [kept[1] for kept in buckets.values()],
            )
            for manager, buckets in self._kept.items()
        ]
        shadows = [] if shadow is None else [compressed(_encoded(shadow))]
        return _encoded([STATE_FORM, self._shards, compressed(_encoded(managers)), *shadows])


_Rows = dict[Manager, dict[BucketTags, list[_Row]]]


def _add_rows(part: Packed, by_manager: _Rows) -> None:
    managers = [by_manager.setdefault(manager, {}) for manager in part.managers]
    points, shadowed = points_of(part.points), part.shadowed
    limits: Iterable[ShadowLimit | None] = repeat(None)
    if shadowed is not None and shadowed.limit_of:
        limits = [shadowed.limits[place] if place >= 0 else None for place in shadowed.limit_of]
    terms = [(each.governing, *each.named, limit) for each, limit in zip(part.terms, limits, strict=False)]
    pieces = zip(
        part.manager_of, zip(part.user_tags, part.client_tags, part.tags, strict=True), part.seconds_ms,
        part.users, part.client_ids, part.terms_of, pairwise(accumulate(part.counts, initial=0)), strict=True,
    )  # fmt: skip
    for manager, bucket, second_ms, user, client_id, of_terms, (start, end) in pieces:
        governing, level, rule, rule_version, rate_config, known_through_ms, limit = terms[of_terms]
        governed = tuple.__new__(
            GovernedSecond,
            (second_ms, user, client_id, governing, level, rule, rule_version, points[start:end]),
        )
        rows, row = managers[manager].get(bucket), (governed, rate_config, known_through_ms, limit)
        if rows is None:
            managers[manager][bucket] = [row]
        else:
            rows.append(row)


def _second_ms_of(row: _Row) -> int:
    return row[0].second_ms


def known_through_of(known_through_ms: Iterable[int | None]) -> int | None:
    """The time up to which all rules were known, from the times of each; None if one of these is not known."""
    known_ms = list(known_through_ms)
    return None if None in known_ms else min(time_ms for time_ms in known_ms if time_ms is not None)


def _restored(state: bytes, shards: int) -> tuple[dict[str, _Buckets], Any]:
    """The buckets of a state, and the state of those under shadow quotas; None for none."""
    form, *parts = msgspec.msgpack.decode(state)
    if form != STATE_FORM:
        raise ValueError(
            f"state of the buckets has form {form}, expected {STATE_FORM}: move the checkpoint log away and start "
            "with --new-lineage"
        )
    written, managers, *shadows = parts
    if written != shards:
        raise ValueError(
            f"state of the buckets has {written} shards, expected {shards}: see stream.state_shards"
        )
    kept = {
        manager: dict(zip(map(tuple, buckets), map(_Kept, forget_at_ms, states), strict=True))
        for manager, buckets, forget_at_ms, states in _decoded(decompressed(managers))
    }
    return kept, _decoded(decompressed(shadows[0])) if shadows else None
