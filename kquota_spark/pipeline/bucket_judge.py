"""One bucket on a worker: its replay, with the settings that its broker has at the time, and its stored state."""

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
    """Judges the rows of one bucket.

    Args:
        quota_type: what the bucket limits.
        configs: see `Configs`.
        state: `state` of such a judge, to go on from.
    """

    def __init__(self, quota_type: QuotaType, configs: Configs, state: bytes | None = None) -> None:
        self._quota_type, self._configs = quota_type, configs
        self.config = configs.of(quota_type, None)
        self._replay: Replay = replay_of(quota_type, self.config)
        if state is not None:
            self._restore(state)

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

    def _restore(self, state: bytes) -> None:
        name, replay = msgspec.msgpack.decode(state)
        self.config = _named_config(name)
        self._replay = replay_of(self._quota_type, self.config, replay)
