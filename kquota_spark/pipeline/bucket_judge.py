"""One bucket on a worker: its replay, with the settings that its broker has at the time, and its stored state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from kquota_spark.model.decision import Decision, judge_bucket
from kquota_spark.model.replay import BucketReplay
from kquota_spark.model.sampled_rate import RateConfig
from kquota_spark.pipeline.sent import Sent, stretch_of

_FORM = 4
"""Version of the state's form; another release that cannot read it says so."""

_named_config = cache(RateConfig.parse)


def config_of(sent: Sent, default: RateConfig) -> RateConfig:
    """The sample ring of a row's broker."""
    return default if sent.rate_config is None else _named_config(sent.rate_config)


class Judged(NamedTuple):
    """One second of the bucket, and the model that judged it."""

    decision: Decision
    model_variant: str


class BucketJudge:
    """Judges the rows of one bucket.

    Args:
        config: sample ring of the rows whose `rate_config` is null.
        state: `state` of such a judge, to go on from.

    Raises:
        ValueError: the state was written by another release in a form that this one does not know.
    """

    def __init__(self, config: RateConfig, state: bytes | None = None) -> None:
        self._default = self.config = config
        self.replay: BucketReplay | None = None
        if state is not None:
            self._restore(state)

    def judge(self, rows: Iterable[Sent]) -> list[Judged]:
        """Judge whole seconds; a second that has been judged comes out as late."""
        judged: list[Judged] = []
        ordered = sorted(rows, key=attrgetter("second_ms"))
        for _, group in groupby(ordered, key=attrgetter("rate_config")):
            of_config = list(group)
            replay = self._replay_for(config_of(of_config[0], self._default), of_config[-1].second_ms)
            variant = self.config.name
            judged += [
                Judged(decision, variant) for decision in judge_bucket(replay, map(stretch_of, of_config))
            ]
        return judged

    def _replay_for(self, config: RateConfig, second_ms: int) -> BucketReplay:
        """A broker takes other settings only at its start, with empty rings; rows that are late change nothing."""
        before = self.replay
        if before is None or (self.config != config and second_ms >= before.folded_through_ms):
            self.config, self.replay = config, BucketReplay(config)
            if before is not None:
                self.replay.folded_through_ms = before.folded_through_ms
        assert self.replay is not None
        return self.replay

    @property
    def folded_through_ms(self) -> int:
        """Everything before this time is judged."""
        return 0 if self.replay is None else self.replay.folded_through_ms

    @property
    def forget_at_ms(self) -> int:
        """From when on, without another request, a new judge gives the same verdicts."""
        return self.folded_through_ms + self.config.horizon_ms

    @property
    def memory(self) -> object:
        """All that is known of the past; samples are a ring, so their numbering does not matter."""
        rings = []
        for ring in [] if self.replay is None else self.replay.rings:
            current, *lists = ring.state
            rings.append([values[current:] + values[:current] for values in lists])
        return self.config, rings

    @property
    def state(self) -> bytes:
        """The state as MessagePack; the first number is the version of this form."""
        rings = [] if self.replay is None else [ring.state for ring in self.replay.rings]
        return msgspec.msgpack.encode([_FORM, self.config.name, self.folded_through_ms, rings])

    def _restore(self, state: bytes) -> None:
        form, *parts = msgspec.msgpack.decode(state)
        if form != _FORM:
            msg = (
                f"state of a bucket has form {form}, expected {_FORM}: move the checkpoint of judge away and start "
                "with --new-lineage"
            )
            raise ValueError(msg)
        name, folded_through_ms, rings = parts
        self.config = _named_config(name)
        if rings:
            self.replay = BucketReplay(self.config, rings)
            self.replay.folded_through_ms = folded_through_ms
