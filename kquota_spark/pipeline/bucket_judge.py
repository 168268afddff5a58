"""One quota manager on a worker: the buckets of one broker and quota type, each with its replay and stored state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import Decision, Replay, judge_bucket, model_name, replay_of
from kquota_spark.pipeline.sent import Sent, stretch_of
from kquota_spark.schema.columns import STATE_FORM

_named_config = cache(RateConfig.parse)


class Configs(NamedTuple):
    """Windows of the brokers' quotas: of the sampled rates where a row does not name its own, and of mutations."""

    sampled: RateConfig
    mutations: RateConfig

    def of(self, quota_type: QuotaType, rate_config: str | None) -> RateConfig:
        """Those of a row."""
        if quota_type is QuotaType.CONTROLLER_MUTATION:
            return self.mutations
        return self.sampled if rate_config is None else _named_config(rate_config)


class Judged(NamedTuple):
    """One second of the bucket, and the model that judged it."""

    decision: Decision
    model_variant: str


class BucketJudge:
    """Judges the rows of one bucket, with the settings that its broker has at the time; goes on from a `state`."""

    def __init__(self, quota_type: QuotaType, configs: Configs, state: bytes | None = None) -> None:
        self._quota_type, self._configs = quota_type, configs
        self.config, replay = configs.of(quota_type, None), None
        if state is not None:
            name, replay = msgspec.msgpack.decode(state)
            self.config = _named_config(name)
        self._replay: Replay = replay_of(quota_type, self.config, replay)

    def judge(self, rows: Iterable[Sent]) -> list[Judged]:
        """Judge whole seconds; a second that has been judged comes out as late."""
        judged: list[Judged] = []
        ordered = sorted(rows, key=attrgetter("second_ms"))
        for name, group in groupby(ordered, key=attrgetter("rate_config")):
            of_config = list(group)
            self._take(self._configs.of(self._quota_type, name), of_config[-1].second_ms)
            variant = model_name(self._quota_type, self.config)
            decisions = judge_bucket(self._replay, map(stretch_of, of_config))
            judged += [Judged(decision, variant) for decision in decisions]
        return judged

    def _take(self, config: RateConfig, second_ms: int) -> None:
        """A broker takes other settings only at its start, with empty rings; rows that are late change nothing."""
        folded_through_ms = self._replay.folded_through_ms
        if self.config != config and second_ms >= folded_through_ms:
            self.config, self._replay = config, replay_of(self._quota_type, config)
            self._replay.folded_through_ms = folded_through_ms

    @property
    def folded_through_ms(self) -> int:
        """Everything before this time is judged."""
        return self._replay.folded_through_ms

    @property
    def forget_at_ms(self) -> int:
        """From when on, without another request, a new judge gives the same verdicts."""
        return self._replay.forget_at_ms

    @property
    def memory(self) -> object:
        """All that is known of the past, in a form that can be compared."""
        return self.config, self._replay.memory

    @property
    def state(self) -> bytes:
        """The state as MessagePack."""
        return msgspec.msgpack.encode([self.config.name, self._replay.state])


class _Kept(NamedTuple):
    """A bucket between two micro-batches; what is not used is not looked into."""

    forget_at_ms: int
    state: bytes


class JudgedBucket(NamedTuple):
    """Seconds of one bucket, and the time up to which the rules were known that judged them."""

    bucket: str
    judged: list[Judged]
    known_through_ms: int | None


class ManagerJudge:
    """Judges the rows of all buckets of one manager; goes on from a `state`.

    Raises:
        ValueError: the state was written by another release in a form that this one does not know.
    """

    def __init__(self, quota_type: QuotaType, configs: Configs, state: bytes | None = None) -> None:
        self._quota_type, self._configs = quota_type, configs
        self._kept: dict[str, _Kept] = {} if state is None else _restored(state)

    def judge(self, rows: Iterable[tuple[str, Sent]]) -> list[JudgedBucket]:
        """Judge whole seconds, each row with its bucket; no later call comes with older ones.

        Buckets are forgotten that are as good as new when nothing before these seconds can come any more.
        """
        by_bucket: dict[str, list[Sent]] = {}
        for bucket, sent in rows:
            by_bucket.setdefault(bucket, []).append(sent)
        oldest_ms = min((sent.second_ms for of_bucket in by_bucket.values() for sent in of_bucket), default=0)
        self._kept = {bucket: kept for bucket, kept in self._kept.items() if kept.forget_at_ms > oldest_ms}
        return [self._judged(bucket, of_bucket) for bucket, of_bucket in by_bucket.items()]

    def _judged(self, bucket: str, rows: list[Sent]) -> JudgedBucket:
        kept = self._kept.get(bucket)
        judge = BucketJudge(self._quota_type, self._configs, None if kept is None else kept.state)
        judged = judge.judge(rows)
        self._kept[bucket] = _Kept(judge.forget_at_ms, judge.state)
        return JudgedBucket(bucket, judged, known_through_of(rows))

    @property
    def buckets(self) -> list[str]:
        """Those that are remembered."""
        return list(self._kept)

    @property
    def state(self) -> bytes:
        """The state as MessagePack; the first number is the version of this form."""
        return msgspec.msgpack.encode([STATE_FORM, self._kept])


def known_through_of(rows: Iterable[Sent]) -> int | None:
    """Through when the rules of all these rows were known; None if of one of them nobody said."""
    known_ms = [sent.known_through_ms for sent in rows]
    return None if None in known_ms else min(time_ms for time_ms in known_ms if time_ms is not None)


def _restored(state: bytes) -> dict[str, _Kept]:
    form, *parts = msgspec.msgpack.decode(state)
    if form != STATE_FORM:
        raise ValueError(
            f"state of the buckets has form {form}, expected {STATE_FORM}: move the checkpoint log away and start "
            "with --new-lineage"
        )
    return {bucket: _Kept(*kept) for bucket, kept in parts[0].items()}
