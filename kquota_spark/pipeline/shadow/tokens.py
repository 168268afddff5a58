"""The mutation buckets of one shard under the shadow quotas: their tokens depend on the limit, so each has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from kquota_spark.model.loops.shadow_bucket import ShadowPart, ShadowReplay, ShadowSecond
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import remembers_ms
from kquota_spark.pipeline.shadow.moved import MovedTerms
from kquota_spark.pipeline.shadow.rings import Key

Piece = tuple[int, Sequence[Point], MovedTerms]
"""Start of a second (epoch ms), requests of one client in it, and their limit."""
_TYPE = QuotaType.CONTROLLER_MUTATION


class _Own(NamedTuple):
    folded_through_ms: int
    forget_at_ms: int
    config: str
    state: Any


_NEW = _Own(0, 0, "", None)


class TokenBuckets:
    """The tokens of buckets, continued from a `state`.

    Args:
        config_of: the windows of a row, from its quota type and the name of the windows.
        state: `state` of others.
    """

    def __init__(
        self, config_of: Callable[[QuotaType, str | None], RateConfig], state: Iterable[Any] = ()
    ) -> None:
        self._config_of = config_of
        self._own: dict[Key, _Own] = {
            (manager, tuple(bucket)): _Own(*own) for (manager, bucket), own in state
        }

    def __contains__(self, key: Key) -> bool:
        return key in self._own

    def __len__(self) -> int:
        return len(self._own)

    @property
    def state(self) -> list[Any]:
        """The state from which others can continue."""
        return [*self._own.items()]

    def clear(self) -> None:
        """Forget all."""
        self._own.clear()

    def forget(self, oldest_ms: int, enforced: Mapping[str, Mapping[Any, Any]]) -> None:
        """Forget tokens that equal new ones; the place of some stays as long as the enforced bucket does."""
        self._own = {
            key: own if own.forget_at_ms > oldest_ms else own._replace(state=None)
            for key, own in self._own.items()
            if own.forget_at_ms > oldest_ms or key[1] in enforced.get(key[0], {})
        }

    def judge(self, key: Key, pieces: Iterable[Piece]) -> Iterator[tuple[ShadowSecond, bool]]:
        """Judge the seconds of one bucket, each with whether a gap of the log makes it incomplete."""
        own = self._own.get(key, _NEW)
        folded_ms, forget_at_ms, config_name = own[:3]
        replay: ShadowReplay | None = None
        for second_ms, group in groupby(sorted(pieces, key=itemgetter(0)), key=itemgetter(0)):
            of_second = list(group)
            if second_ms < folded_ms:
                continue  # a late line: the replay of the enforced bucket does not fold it either
            config = self._config_of(_TYPE, of_second[0][2].rate_config)
            if replay is None or config.name != config_name:
                replay = ShadowReplay(_TYPE, config, own.state if config.name == config_name else None)
                config_name = config.name
            judged = replay.judge(
                second_ms, [ShadowPart(points, terms.limit) for _, points, terms in of_second]
            )
            folded_ms = second_ms + 1_000
            forget_at_ms = folded_ms + remembers_ms(_TYPE, config)
            yield judged, any(terms.has_gap for *_, terms in of_second)
        state = own.state if replay is None else replay.state
        self._own[key] = _Own(folded_ms, forget_at_ms, config_name, state)
