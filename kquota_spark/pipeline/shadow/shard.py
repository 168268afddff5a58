"""The shadow buckets of one shard.

A sample ring does not depend on the limit. So a bucket that has the same requests under both sets of quotas needs no
second ring: the enforced one has measured all. Its verdicts under another limit need a ring only where the rate comes
near that limit, and then from the stored state. A bucket that once had other requests has a ring of its own, which
begins as a copy. It keeps the ring until nothing remembers the difference.

Tokens of a mutation bucket do depend on the limit. So there a bucket with another limit has its own from then on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from kquota_spark.model.loops.open_loop import SURELY_BELOW
from kquota_spark.model.loops.shadow_bucket import ShadowLimit, ShadowSecond
from kquota_spark.model.measure.sampled_rate import RateConfig, RingState
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import Decision, GovernedSecond, QuietSecond
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS
from kquota_spark.pipeline.shadow.moved import Bucket, Moved, MovedTerms, Place, numbered
from kquota_spark.pipeline.shadow.rings import KeptRings, Key
from kquota_spark.pipeline.shadow.rows import Enforced, ShadowRow, has_row, rows_of
from kquota_spark.pipeline.shadow.rules import Shadowed
from kquota_spark.pipeline.shadow.sampled import SampledBuckets
from kquota_spark.pipeline.shadow.tokens import Piece, TokenBuckets

_decoded = msgspec.msgpack.Decoder().decode
_MUTATION = QuotaType.CONTROLLER_MUTATION
_NOTHING: Mapping[Any, Any] = {}

ShadowRequests = tuple[GovernedSecond, str | None, Any, ShadowLimit | None]
"""Requests of one client in one second, the name of the windows, and the limit by the shadow quotas; None if they count
in another bucket."""
States = Mapping[Bucket, tuple[int, bytes]]
"""The states of enforced buckets, each after its time to be forgotten."""
Seconds = Sequence[tuple[Decision | QuietSecond, str]]
"""Judged seconds of an enforced bucket."""


class EnforcedBuckets(NamedTuple):
    """The buckets of one quota manager that have requests in force.

    Attributes:
        manager: text of the manager.
        place: the same as values.
        rows: requests by bucket.
        judged: the same buckets in the same order, with their judged seconds.
    """

    manager: str
    place: Place
    rows: Mapping[Bucket, Sequence[ShadowRequests]]
    judged: Sequence[tuple[Any, Bucket, Seconds, Any]]


class ShadowShard:
    """The shadow buckets of one shard, continued from a `state`; `rows` has what was found since the start.

    Args:
        config_of: the windows of a row, from its quota type and the name of the windows.
        state: `state` of another one.
        enforced: the buckets with enforced rings, as they were when that was stored.
    """

    def __init__(
        self,
        config_of: Callable[[QuotaType, str | None], RateConfig],
        state: Any = None,
        enforced: Mapping[str, Mapping[Bucket, Any]] = _NOTHING,
    ) -> None:
        self._config_of = config_of
        self._name, self._from_ms = "", 0
        self._version: str
        self._version, tokens, parted, rings = state or ("", (), (), ())
        self._tokens = TokenBuckets(config_of, tokens)
        self._parted: defaultdict[str, set[Bucket]] = defaultdict(set)
        """By manager, enforced buckets with other requests than the shadow ones of their names."""
        for manager, marks in parted:
            buckets = enforced[manager]
            self._parted[manager] = set(buckets) if marks is True else set(compress(buckets, marks))
        self._rings = {each[0]: KeptRings.of_state(each) for each in rings}
        """By the name of the windows, the rings of buckets that are not shared."""
        self._below: dict[int, float] = {}
        """By the identity of a limit, the rate below which a quiet second has no other verdict."""
        self._waiting: dict[str, SampledBuckets] = {}
        self._mutations: dict[Key, tuple[Place, list[Piece]]] = {}
        self._in_force: dict[Key, tuple[Place, Seconds]] = {}
        self._throttled: dict[Key, dict[int, Enforced]] = {}
        """Seconds that are throttled in force, of buckets that may be another matter under the shadow quotas."""
        self._rows: list[ShadowRow] = []

    def state_beside(self, enforced: Mapping[str, Mapping[Bucket, Any]]) -> Any:
        """The state from which another shard can continue; None if there is nothing to keep.

        Args:
            enforced: the buckets with enforced rings, by the text of their managers.
        """
        parted = [
            (manager, True if len(buckets) == len(enforced[manager]) else _marks(enforced[manager], buckets))
            for manager, buckets in self._parted.items()
            if buckets
        ]
        rings = [each.state for each in self._rings.values() if each.places]
        return (self._version, self._tokens.state, parted, rings) if self._tokens or parted or rings else None

    @property
    def rows(self) -> pa.RecordBatch | None:
        """Rows of `shadow_decisions`; None for none."""
        return rows_of(self._rows, self._name, self._version) if self._rows else None

    def begin(self, shadows: Sequence[Shadowed], windows: Iterable[str | None], *, has_moved: bool) -> bool:
        """Continue with a version, the same in all of these; another one forgets the rings of the version before.

        Args:
            shadows: the limits of each part of the requests.
            windows: names of the windows that they have.
            has_moved: whether requests count in another bucket.

        Returns:
            Whether the shadow quotas can make a difference to any bucket.
        """
        first = shadows[0]
        if first.version != self._version:
            self._tokens.clear()
            self._parted.clear()
            self._rings.clear()
        self._name, self._version, self._from_ms = first.name, first.version, first.from_ms
        share = min(map(self._share, windows))
        self._below = {
            id(limit): inf
            if limit.is_enforced or limit.limit_per_s is None
            else limit.limit_per_s * share / SURELY_BELOW
            for each in shadows
            for limit in each.limits
        }
        has_own = bool(self._tokens or self._rings or any(self._parted.values()))
        return has_own or has_moved or any(each.has_difference for each in shadows)

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
        self._tokens.forget(oldest_ms, enforced)
        for rings in self._rings.values():
            for manager, bucket in rings.forget(oldest_ms):
                if bucket in enforced.get(manager, _NOTHING):
                    self._parted[manager].add(bucket)
        self._rings = {name: rings for name, rings in self._rings.items() if rings.places}
        for manager, buckets in self._parted.items() if has_forgotten else ():
            buckets.intersection_update(enforced.get(manager, _NOTHING))

    def judge_moved(self, moved: Moved, texts: Sequence[str], before: Mapping[str, States]) -> None:
        """Take requests that count in other buckets under the shadow quotas.

        Args:
            moved: the requests.
            texts: text of each of their managers.
            before: the states of the enforced buckets before these seconds.
        """
        keys = [((texts[manager], tags), moved.managers[manager]) for manager, tags in moved.buckets]
        of_bucket, of_terms, _, _ = moved.piece_columns
        is_sampled = np.array([place[2] is not _MUTATION for _, place in keys])[of_bucket]
        names = [each.rate_config for each in moved.terms]
        for name in dict.fromkeys(names):
            is_meant = is_sampled & np.array([each == name for each in names])[of_terms]
            if is_meant.any():
                self._wait(keys, moved, is_meant, name, before)
        for bucket in np.unique(of_bucket[~is_sampled]).tolist():
            key, place = keys[bucket]
            self._mutations.setdefault(key, (place, []))[1].extend(moved.pieces_of(bucket))

    def _wait(
        self,
        keys: Sequence[tuple[Key, Place]],
        moved: Moved,
        is_meant: Any,
        name: str | None,
        before: Mapping[str, States],
    ) -> None:
        """Take those of the moved pieces that are meant, which have the same windows."""
        config = self._config_of(QuotaType.PRODUCE, name)
        waiting = self._waiting_of(config)
        columns = moved.piece_columns
        of_bucket, of_terms, seconds_ms, counts = (column[is_meant] for column in columns)
        used, of_used = numbered(of_bucket)
        places = self._all_kept_at(config, [keys[bucket][0] for bucket in used.tolist()], before)
        points = moved.matrix if is_meant.all() else moved.matrix[np.repeat(is_meant, columns[3])]
        of_point = (
            np.repeat(column, counts)
            for column in (np.array(places, np.int64)[of_used], of_terms, seconds_ms)
        )
        waiting.add_requests(*of_point, points, moved.terms)

    def judge(self, buckets: EnforcedBuckets, before: States) -> None:
        """Take the requests of the enforced buckets of one manager; moved ones were taken before.

        Args:
            buckets: the buckets with their judged seconds.
            before: the states of the buckets before these seconds.
        """
        manager, place, rows, judged = buckets
        own = {bucket for each in self._rings.values() for key, bucket in each.places if key == manager}
        unlike, below = self._parted[manager] | own if own else self._parted[manager], self._below
        pairs = zip(judged, rows.values(), strict=True)
        if place[2] is not _MUTATION:
            # Nearly all buckets are left out here, so this is written for speed.
            pairs = [
                (one, of_bucket)
                for one, of_bucket in pairs
                if len(of_bucket) > 1
                or (limit := of_bucket[0][3]) is None
                or type(second := one[2][0][0]) is not QuietSecond
                or second[2] >= below[id(limit)]
                or (unlike and one[1] in unlike)
            ]
        for (_, bucket, seconds, _), of_bucket in pairs:
            self._take((manager, bucket), place, of_bucket, seconds, before, has_ring=bucket in own)

    def part_all(self, buckets: EnforcedBuckets, before: States) -> None:
        """Do `judge` where no request counts in its enforced bucket under the shadow quotas."""
        manager, place, rows, judged = buckets
        if place[2] is _MUTATION:
            self.judge(buckets, before)
            return
        parted = self._parted[manager]
        for bucket in (rows.keys() & before.keys()) - parted if before else ():
            self._copy(manager, bucket, before)
        parted.update(rows)
        for _, bucket, seconds, _ in judged:
            if type(seconds[0][0]) is not QuietSecond or len(seconds) > 1:
                self._remember((manager, bucket), place, seconds)

    def _take(
        self,
        key: Key,
        place: Place,
        of_bucket: Sequence[ShadowRequests],
        seconds: Seconds,
        before: States,
        *,
        has_ring: bool,
    ) -> None:
        manager, bucket = key
        pieces = _pieces(of_bucket)
        is_parted = has_ring or bucket in self._parted[manager]
        is_alike = len(pieces) == len(of_bucket)
        if place[2] is _MUTATION:
            has_own = key in self._tokens or key in self._mutations
            if has_own or not is_alike or not all(terms.limit.is_enforced for *_, terms in pieces):
                self._remember(key, place, seconds)
                self._mutations.setdefault(key, (place, []))[1].extend(pieces)
            return
        if not is_parted and is_alike:
            if not self._are_surely_alike(pieces, seconds):
                self._share_ring(key, place, pieces, seconds, before)
            return
        if not is_parted:
            if bucket in before:
                self._copy(manager, bucket, before)
            self._parted[manager].add(bucket)
        self._remember(key, place, seconds)
        for config, of_config in self._by_windows(place[2], pieces):
            waiting = self._waiting_of(config)
            waiting.add_points(self._kept_at(config, key, _NOTHING), of_config)

    def _share_ring(
        self, key: Key, place: Place, pieces: Sequence[Piece], seconds: Seconds, before: States
    ) -> None:
        """Take requests of a bucket that continues from the stored state of the enforced one."""
        self._remember(key, place, seconds)
        folded_ms, name, ring = _stored_ring(before.get(key[1]))
        for config, of_config in self._by_windows(place[2], pieces):
            given = ring if config.name == name else None
            waiting = self._waiting_of(config)
            waiting.add_points(waiting.add_given(key, folded_ms, given), of_config)

    def _by_windows(
        self, quota_type: QuotaType, pieces: Sequence[Piece]
    ) -> Iterable[tuple[RateConfig, Sequence[Piece]]]:
        names = {terms.rate_config for *_, terms in pieces}
        for name in names:
            found = pieces if len(names) == 1 else [each for each in pieces if each[2].rate_config == name]
            yield self._config_of(quota_type, name), found

    def _remember(self, key: Key, place: Place, seconds: Seconds) -> None:
        """Keep what was judged in force, and apart the seconds with a throttle."""
        self._in_force[key] = place, seconds
        throttled = {
            second.second_ms: _enforced(second)
            for second, _ in seconds
            if not isinstance(second, QuietSecond) and second.throttled_requests
        }
        if throttled:
            self._throttled[key] = throttled

    def _waiting_of(self, config: RateConfig) -> SampledBuckets:
        found = self._waiting.get(config.name)
        if found is None:
            found = self._waiting[config.name] = SampledBuckets(config, self._rings_of(config))
        return found

    def _rings_of(self, config: RateConfig) -> KeptRings:
        found = self._rings.get(config.name)
        if found is None:
            found = self._rings[config.name] = KeptRings(config)
        return found

    def _all_kept_at(
        self, config: RateConfig, keys: Sequence[Key], before: Mapping[str, States]
    ) -> list[int]:
        """Do `_kept_at` for buckets of all managers."""
        places = self._rings_of(config).places
        found = [*map(places.get, keys)]
        if None not in found:
            return found  # type: ignore[return-value]
        missing = [key for key, at in zip(keys, found, strict=True) if at is None]
        for key in missing:
            if key[1] in before.get(key[0], _NOTHING):
                self._kept_at(config, key, before[key[0]])
        self._rings_of(config).add_all([key for key in missing if key not in places])
        return [places[key] for key in keys]

    def _kept_at(self, config: RateConfig, key: Key, before: States) -> int:
        """The position of a bucket's own ring, which begins as a copy of the enforced one if that was shared."""
        rings = self._rings_of(config)
        found = rings.places.get(key)
        if found is not None:
            return found
        if key[1] in before and key[1] not in self._parted[key[0]] and not self._has_ring(key):
            self._copy(*key, before)
            if key in rings.places:
                return rings.places[key]
        return rings.add(key)

    def _has_ring(self, key: Key) -> bool:
        return any(key in rings.places for rings in self._rings.values())

    def _copy(self, manager: str, bucket: Bucket, before: States) -> None:
        """Begin a ring as a copy of the enforced one."""
        forget_at_ms = before[bucket][0]
        folded_ms, name, ring = _stored_ring(before[bucket])
        rings = self._rings_of(RateConfig.parse(name))
        rings.put(rings.add((manager, bucket)), folded_ms, forget_at_ms, ring)

    def _are_surely_alike(self, pieces: Sequence[Piece], seconds: Seconds) -> bool:
        """Whether the enforced ring shows the same verdicts: the same limits, or rates that come near neither."""
        limits = [terms.limit for *_, terms in pieces]
        if all(limit.is_enforced for limit in limits):
            return True
        if any(not isinstance(second, QuietSecond) for second, _ in seconds):
            return False
        # The rate of a second is that of its largest share of the limit: the highest only under one enforced limit.
        if len({limit.inferred_limit for limit in limits}) > 1:
            return False
        lowest = min((each.limit_per_s for each in limits if each.limit_per_s is not None), default=inf)
        allowed = lowest * self._share(pieces[0][2].rate_config)
        return all(second.rate_per_s * SURELY_BELOW < allowed for second, _ in seconds)

    def _share(self, rate_config: str | None) -> float:
        """The part of a limit below which a rate is not near it, for any window; 0 for windows of 2 ms or less."""
        config = self._config_of(QuotaType.PRODUCE, rate_config)
        padded_ms = (config.num_samples - 1) * config.window_ms
        return 1 - MARGIN_MS / padded_ms if padded_ms > MARGIN_MS else 0.0

    def finish(self) -> None:
        """Judge what was taken since the last call."""
        for waiting in self._waiting.values():
            for found in waiting.judged(self._throttled):
                self._add(found.key, found.place, found.second, waiting.config, has_gap=found.has_gap)
        for key, (place, pieces) in self._mutations.items():
            config = self._config_of(place[2], None)
            for second, has_gap in self._tokens.judge(key, pieces):
                self._add(key, place, second, config, has_gap=has_gap)
        for key, throttled in self._throttled.items():  # here no request counts in the bucket
            place, _ = self._in_force[key]
            for second_ms in [*throttled]:
                nothing = ShadowSecond(second_ms, None)
                self._add(key, place, nothing, self._config_of(place[2], None), has_gap=False)
        for each in (self._waiting, self._mutations, self._in_force, self._throttled):
            each.clear()

    def _add(self, key: Key, place: Place, found: ShadowSecond, config: RateConfig, *, has_gap: bool) -> None:
        enforced = self._enforced_at(key, found.second_ms)
        if has_row(found, enforced):
            # No ring of this version can lack a request from before it.
            is_warm = not self._from_ms or found.second_ms >= self._from_ms + config.horizon_ms
            named = place[0], place[1], place[2].value
            self._rows.append(ShadowRow(named, key[1], found, enforced, is_warm and not has_gap))

    def _enforced_at(self, key: Key, second_ms: int) -> Enforced:
        """What a second has in force; nothing without a request there."""
        found = self._throttled.get(key, _NOTHING).pop(second_ms, None)
        if found is None and key in self._in_force:
            _, seconds = self._in_force[key]
            found = next((_enforced(each) for each, _ in seconds if each.second_ms == second_ms), None)
        return found or Enforced()


def _pieces(rows: Iterable[ShadowRequests]) -> list[Piece]:
    """The requests that have a limit by the shadow quotas."""
    return [
        (governed.second_ms, governed.points, MovedTerms(limit, rate_config, bool(governed.governing.gaps)))
        for governed, rate_config, _, limit in rows
        if limit is not None
    ]


def _stored_ring(stored: tuple[int, bytes] | None) -> tuple[int, str, RingState | None]:
    """Time up to which an enforced ring has everything (epoch ms), name of its windows, and the ring."""
    if stored is None:
        return 0, "", None
    name, state = _decoded(stored[1])
    return state[0], name, state[1]


def _marks(buckets: Iterable[Bucket], marked: set[Bucket]) -> bytes:
    return bytes(bucket in marked for bucket in buckets)


def _enforced(second: Decision | QuietSecond) -> Enforced:
    if isinstance(second, QuietSecond):
        return Enforced(second.governed.governing.limit_per_s)
    throttles = second.throttled_requests, second.total_throttle_ms, second.throttle_ms
    return Enforced(second.limit_per_s, *throttles)
