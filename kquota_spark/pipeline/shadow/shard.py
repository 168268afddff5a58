"""The shadow buckets of one shard.

A sample ring does not depend on the limit. So a bucket that has the same requests under both sets of quotas needs no
second ring: the enforced one has measured all. Its verdicts under another limit need a ring only where the rate comes
near that limit, and then from the stored state. A bucket that once had other requests has a ring of its own, which
begins as a copy. It keeps the ring until nothing remembers the difference.

Tokens of a mutation bucket do depend on the limit. So there a bucket with another limit has its own from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kquota_spark.model.loops.open_loop import SURELY_BELOW
from kquota_spark.model.loops.shadow_bucket import ShadowLimit, ShadowSecond
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import Decision, GovernedSecond, QuietSecond
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS
from kquota_spark.pipeline.shadow.moved import Bucket, Moved, MovedTerms, Place, numbered
from kquota_spark.pipeline.shadow.rings import Key
from kquota_spark.pipeline.shadow.rows import Enforced, ShadowRow, has_row, rows_of
from kquota_spark.pipeline.shadow.rules import Shadowed
from kquota_spark.pipeline.shadow.sampled import SampledBuckets, manager_of
from kquota_spark.pipeline.shadow.tokens import Piece, TokenBuckets
from kquota_spark.pipeline.shadow.unlike import States, UnlikeBuckets, stored_ring

_MUTATION = QuotaType.CONTROLLER_MUTATION
_NOTHING: Mapping[Any, Any] = {}

ShadowRequests = tuple[GovernedSecond, str | None, Any, ShadowLimit | None]
"""Requests of one client in one second, the name of the windows, and the limit by the shadow quotas; None if they count
in another bucket."""
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
        self._rings = UnlikeBuckets((parted, rings), enforced)
        self._are_all_moved = False
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
        parted, rings = self._rings.state_beside(enforced)
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
        self._are_all_moved = all(set(each.limit_of) <= {-1} for each in shadows)
        has_own = bool(self._tokens or self._rings)
        return has_own or has_moved or any(each.has_difference for each in shadows)

    def forget(
        self, oldest_ms: int, enforced: Mapping[str, Mapping[Bucket, Any]], *, has_forgotten: bool
    ) -> None:
        """Forget rings that equal new ones; no later second is older than `oldest_ms`.

        Args:
            oldest_ms: start of the oldest open second, epoch ms.
            enforced: the buckets with enforced rings, by the text of their managers.
            has_forgotten: whether some of them were just forgotten.
        """
        self._tokens.forget(oldest_ms, enforced)
        self._rings.forget(oldest_ms, enforced, has_forgotten=has_forgotten)

    def judge_moved(self, parts: Iterable[Moved], before: Mapping[str, States]) -> None:
        """Take requests that count in other buckets under the shadow quotas.

        Args:
            parts: the requests.
            before: the states of the enforced buckets before these seconds.
        """
        for moved in parts:
            self._take_moved(moved, before)

    def _take_moved(self, moved: Moved, before: Mapping[str, States]) -> None:
        keys = [(moved.managers[manager], tags) for manager, tags in moved.buckets]
        of_bucket, of_terms, _, _ = moved.piece_columns
        is_sampled = np.array([manager_of(text)[2] is not _MUTATION for text, _ in keys])[of_bucket]
        names = [each.rate_config for each in moved.terms]
        for name in dict.fromkeys(names):
            is_meant = is_sampled & np.array([each == name for each in names])[of_terms]
            if is_meant.any():
                self._wait(keys, moved, is_meant, name, before)
        for bucket in np.unique(of_bucket[~is_sampled]).tolist():
            key = keys[bucket]
            self._mutations.setdefault(key, (manager_of(key[0]), []))[1].extend(moved.pieces_of(bucket))

    def _wait(
        self,
        keys: Sequence[Key],
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
        places = self._rings.all_at(config, [keys[bucket] for bucket in used.tolist()], before)
        points = moved.matrix if is_meant.all() else moved.matrix[np.repeat(is_meant, columns[3])]
        of_piece = np.array(places, np.int64)[of_used], of_terms, seconds_ms
        ring_of, terms_of, seconds_of = (np.repeat(column, counts) for column in of_piece)
        waiting.add_requests(ring_of, terms_of, seconds_of, points, moved.terms)

    def judge(self, buckets: EnforcedBuckets, before: States) -> None:
        """Take the requests of the enforced buckets of one manager; moved ones were taken before.

        Args:
            buckets: the buckets with their judged seconds.
            before: the states of the buckets before these seconds.
        """
        manager, place, rows, judged = buckets
        if self._are_all_moved and place[2] is not _MUTATION:
            self._part_all(buckets, before)
            return
        own, below = self._rings.names_of(manager), self._below
        unlike = self._rings.parted[manager] | own if own else self._rings.parted[manager]
        pairs = [*zip(judged, rows.values(), strict=True)]
        if place[2] is not _MUTATION:
            # Nearly all buckets are left out here, so this is written for speed.
            pairs = [
                (one, of_bucket)
                for one, of_bucket in pairs
                if (
                    (limit := of_bucket[0][3]) is None
                    or type(second := one[2][0][0]) is not QuietSecond
                    or second[2] >= below[id(limit)]
                    if len(of_bucket) == 1
                    else not _is_surely_below(of_bucket, one[2], below)
                )
                or (unlike and one[1] in unlike)
            ]
        for (_, bucket, seconds, _), of_bucket in pairs:
            self._take((manager, bucket), place, of_bucket, seconds, before, has_ring=bucket in own)

    def _part_all(self, buckets: EnforcedBuckets, before: States) -> None:
        """Do `judge` where no request counts in its enforced bucket under the shadow quotas."""
        manager, place, rows, judged = buckets
        self._rings.part(manager, rows, before)
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
        is_parted = has_ring or bucket in self._rings.parted[manager]
        is_alike = len(pieces) == len(of_bucket)
        if place[2] is _MUTATION:
            has_own = key in self._tokens or key in self._mutations
            if has_own or not is_alike or not all(terms.limit.is_enforced for *_, terms in pieces):
                self._remember(key, place, seconds)
                self._mutations.setdefault(key, (place, []))[1].extend(pieces)
            return
        if not is_parted and is_alike:
            if not all(terms.limit.is_enforced for *_, terms in pieces):
                self._share_ring(key, place, pieces, seconds, before)
            return
        if not is_parted:
            self._rings.part(manager, {bucket: None}, before)
        self._remember(key, place, seconds)
        for config, of_config in self._by_windows(place[2], pieces):
            waiting = self._waiting_of(config)
            waiting.add_points(self._rings.at(config, key, _NOTHING), of_config)

    def _share_ring(
        self, key: Key, place: Place, pieces: Sequence[Piece], seconds: Seconds, before: States
    ) -> None:
        """Take requests of a bucket that continues from the stored state of the enforced one."""
        self._remember(key, place, seconds)
        folded_ms, name, ring = stored_ring(before.get(key[1]))
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
            found = self._waiting[config.name] = SampledBuckets(config, self._rings.of(config))
        return found

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
        throttled = self._throttled.get(key)
        found = throttled.pop(second_ms, None) if throttled else None
        if found is None and key in self._in_force:
            _, seconds = self._in_force[key]
            found = next((_enforced(each) for each, _ in seconds if each.second_ms == second_ms), None)
        return found or Enforced()


def _is_surely_below(rows: Sequence[ShadowRequests], seconds: Seconds, below: Mapping[int, float]) -> bool:
    """Whether the enforced ring shows that no rate comes near the shadow limit, and nothing was throttled."""
    # The rate of a second is that of its largest share of the limit: the highest only under one enforced limit.
    limit = rows[0][0].governing.limit_per_s
    if any(row[0][3][0] != limit for row in rows):
        return False
    least = min([below.get(id(row[3]), -1.0) for row in rows])
    return all(type(second) is QuietSecond and second[2] < least for second, _ in seconds)


def _pieces(rows: Iterable[ShadowRequests]) -> list[Piece]:
    """The requests that have a limit by the shadow quotas."""
    return [
        (governed.second_ms, governed.points, MovedTerms(limit, rate_config, bool(governed.governing.gaps)))
        for governed, rate_config, _, limit in rows
        if limit is not None
    ]


def _enforced(second: Decision | QuietSecond) -> Enforced:
    if isinstance(second, QuietSecond):
        return Enforced(second.governed.governing.limit_per_s)
    throttles = second.throttled_requests, second.total_throttle_ms, second.throttle_ms
    return Enforced(second.limit_per_s, *throttles)
