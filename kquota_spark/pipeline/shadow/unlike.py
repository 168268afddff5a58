"""Buckets that are not the same under the enforced and the shadow quotas: each has a ring of its own, or none yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec

from kquota_spark.model.measure.sampled_rate import RateConfig, RingState
from kquota_spark.pipeline.shadow.moved import Bucket
from kquota_spark.pipeline.shadow.rings import KeptRings, Key

_decoded = msgspec.msgpack.Decoder().decode
_NOTHING: Mapping[Any, Any] = {}
States = Mapping[Bucket, tuple[int, bytes]]
"""The states of enforced buckets, each after its time to be forgotten."""


class UnlikeBuckets:
    """The buckets of one shard, continued from a `state`.

    Args:
        state: the state of others.
        enforced: the buckets with enforced rings, as they were when that was stored.
    """

    def __init__(
        self, state: tuple[Iterable[Any], Iterable[Any]], enforced: Mapping[str, Mapping[Bucket, Any]]
    ) -> None:
        parted, rings = state
        self.parted: defaultdict[str, set[Bucket]] = defaultdict(set)
        """By manager, enforced buckets with other requests than the shadow ones of their names."""
        for manager, marks in parted:
            buckets = enforced[manager]
            self.parted[manager] = set(buckets) if marks is True else set(compress(buckets, marks))
        self._rings = {each[0]: KeptRings.of_state(each) for each in rings}

    def __bool__(self) -> bool:
        return bool(self._rings) or any(self.parted.values())

    def state_beside(self, enforced: Mapping[str, Mapping[Bucket, Any]]) -> tuple[list[Any], list[Any]]:
        """The state from which others can continue.

        Marks are in the order of the enforced buckets, so that their names are not stored again.

        Args:
            enforced: the buckets with enforced rings, by the text of their managers.
        """
        parted = [
            (manager, True if len(buckets) == len(enforced[manager]) else _marks(enforced[manager], buckets))
            for manager, buckets in self.parted.items()
            if buckets
        ]
        return parted, [each.state for each in self._rings.values() if each.places]

    def clear(self) -> None:
        """Forget all."""
        self.parted.clear()
        self._rings.clear()

    def forget(
        self, oldest_ms: int, enforced: Mapping[str, Mapping[Bucket, Any]], *, has_forgotten: bool
    ) -> None:
        """Forget rings that equal new ones; no later second is older than `oldest_ms`.

        A bucket that is not shared stays so as long as the enforced ring exists, because that one has other requests.

        Args:
            oldest_ms: start of the oldest open second, epoch ms.
            enforced: the buckets with enforced rings, by the text of their managers.
            has_forgotten: whether some of them were just forgotten.
        """
        for rings in self._rings.values():
            for manager, bucket in rings.forget(oldest_ms):
                if bucket in enforced.get(manager, _NOTHING):
                    self.parted[manager].add(bucket)
        self._rings = {name: rings for name, rings in self._rings.items() if rings.places}
        for manager, buckets in self.parted.items() if has_forgotten else ():
            buckets.intersection_update(enforced.get(manager, _NOTHING))

    def names_of(self, manager: str) -> set[Bucket]:
        """The buckets of a manager that have a ring of their own."""
        return {bucket for each in self._rings.values() for key, bucket in each.places if key == manager}

    def of(self, config: RateConfig) -> KeptRings:
        """The rings with these windows."""
        found = self._rings.get(config.name)
        if found is None:
            found = self._rings[config.name] = KeptRings(config)
        return found

    def part(self, manager: str, buckets: Mapping[Bucket, Any], before: States) -> None:
        """Part enforced buckets from the shadow ones; a ring that was shared is copied.

        Args:
            manager: text of their manager.
            buckets: the buckets.
            before: the states of the enforced ones before their requests were others.
        """
        parted = self.parted[manager]
        for bucket in (buckets.keys() & before.keys()) - parted if before else ():
            if not self._has((manager, bucket)):
                self._copy(manager, bucket, before)
        parted.update(buckets)

    def all_at(self, config: RateConfig, keys: Sequence[Key], before: Mapping[str, States]) -> list[int]:
        """Do `at` for buckets of all managers, `before` by manager."""
        places = self.of(config).places
        found = [*map(places.get, keys)]
        if None not in found:
            return found  # type: ignore[return-value]
        missing = [key for key, at in zip(keys, found, strict=True) if at is None]
        for key in missing:
            if key[1] in before.get(key[0], _NOTHING):
                self.at(config, key, before[key[0]])
        self.of(config).add_all([key for key in missing if key not in places])
        return [places[key] for key in keys]

    def at(self, config: RateConfig, key: Key, before: States) -> int:
        """The position of a bucket's own ring, which begins as a copy of the enforced one if that was shared."""
        rings = self.of(config)
        found = rings.places.get(key)
        if found is not None:
            return found
        if key[1] in before and key[1] not in self.parted[key[0]] and not self._has(key):
            self._copy(*key, before)
            if key in rings.places:
                return rings.places[key]
        return rings.add(key)

    def _has(self, key: Key) -> bool:
        return any(key in rings.places for rings in self._rings.values())

    def _copy(self, manager: str, bucket: Bucket, before: States) -> None:
        """Begin a ring as a copy of the enforced one."""
        folded_ms, name, ring = stored_ring(before[bucket])
        rings = self.of(RateConfig.parse(name))
        rings.put(rings.add((manager, bucket)), folded_ms, before[bucket][0], ring)


def stored_ring(stored: tuple[int, bytes] | None) -> tuple[int, str, RingState | None]:
    """Time up to which an enforced ring has everything (epoch ms), name of its windows, and the ring."""
    if stored is None:
        return 0, "", None
    name, state = _decoded(stored[1])
    return state[0], name, state[1]


def _marks(buckets: Iterable[Bucket], marked: set[Bucket]) -> bytes:
    return bytes(bucket in marked for bucket in buckets)
