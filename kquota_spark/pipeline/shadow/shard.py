"""The shadow buckets of one shard.

A sample ring does not depend on the limit. So a bucket that has the same requests under both sets of quotas needs no
second ring: the enforced one has measured all. Its verdicts under another limit need a ring only where the rate comes
near that limit, and then from the stored state. A bucket that once had other requests has a ring of its own, which
begins as a copy. It keeps the ring until nothing remembers the difference.

Tokens of a mutation bucket do depend on the limit. So there a bucket with another limit has its own from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from kquota_spark.model.loops.open_loop import SURELY_BELOW
from kquota_spark.model.loops.shadow_bucket import ShadowLimit, ShadowPart, ShadowReplay, ShadowSecond
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.decision import Decision, GovernedSecond, QuietSecond, remembers_ms
from kquota_spark.model.replay.windows_from_throttles import MARGIN_MS
from kquota_spark.pipeline.shadow.rows import Enforced, ShadowRow, has_row, rows_of
from kquota_spark.pipeline.shadow.rules import Shadowed

Bucket = tuple[str, str, str | None]
"""User tag, client-id tag, and tags of a callback."""
Place = tuple[str, int, QuotaType]
"""Cluster, broker and quota type: a quota manager."""
_decoded = msgspec.msgpack.Decoder().decode


ShadowRequests = tuple[GovernedSecond, str | None, Any, ShadowLimit | None]
"""Requests of one client in one second, the name of the windows, and the limit by the shadow quotas."""


class ShadowPiece(NamedTuple):
    """Requests of one client in one second that count in a bucket under the shadow quotas."""

    second_ms: int
    points: Sequence[Point]
    limit: ShadowLimit
    rate_config: str | None
    has_gap: bool
    """Whether a gap of the log makes the ring incomplete."""


class _Own(NamedTuple):
    """The own ring or tokens of a bucket; a state of None is a new one."""

    folded_through_ms: int
    forget_at_ms: int
    config: str
    state: Any


_NEW = _Own(0, 0, "", None)


class ShadowShard:
    """The shadow buckets of one shard, continued from a `state`; `rows` has what was found since the start.

    Args:
        config_of: the windows of a row, from its quota type and the name of the windows.
        state: `state` of another one.
    """

    def __init__(self, config_of: Callable[[QuotaType, str | None], RateConfig], state: Any = None) -> None:
        self._config_of = config_of
        self._shares: dict[tuple[QuotaType, str | None], float] = {}
        self._name, self._from_ms = "", 0
        self._version: str
        self._version, stored = state or ("", [])
        self._own: dict[str, dict[Bucket, _Own]] = {
            manager: {tuple(bucket): _Own(*own) for bucket, own in buckets} for manager, buckets in stored
        }
        self._rows: list[ShadowRow] = []

    @property
    def state(self) -> Any:
        """The state from which another shard can continue; None if there is nothing to keep."""
        kept = [(manager, [*buckets.items()]) for manager, buckets in self._own.items() if buckets]
        return (self._version, kept) if kept else None

    @property
    def rows(self) -> pa.RecordBatch | None:
        """Rows of `shadow_decisions`; None for none."""
        return rows_of(self._rows, self._name, self._version) if self._rows else None

    def begin(self, shadows: Sequence[Shadowed]) -> bool:
        """Continue with a version, the same in all of these; another one forgets the rings of the version before.

        Returns:
            Whether the shadow quotas can make a difference to any bucket.
        """
        first = shadows[0]
        if first.version != self._version:
            self._own.clear()
        self._name, self._version, self._from_ms = first.name, first.version, first.from_ms
        return bool(self._own) or any(each.has_difference for each in shadows)

    def forget(self, oldest_ms: int, enforced: Mapping[str, Mapping[Bucket, Any]]) -> None:
        """Forget rings that equal new ones; no later second is older than `oldest_ms`.

        The place of a forgotten ring is kept as long as the enforced ring is, because that one has other requests.

        Args:
            oldest_ms: start of the oldest open second, epoch ms.
            enforced: the buckets with enforced rings, by the text of their managers.
        """
        for manager, buckets in list(self._own.items()):
            kept = enforced.get(manager, {})
            found = {
                bucket: own if own.forget_at_ms > oldest_ms else own._replace(state=None)
                for bucket, own in buckets.items()
                if own.forget_at_ms > oldest_ms or bucket in kept
            }
            if found:
                self._own[manager] = found
            else:
                del self._own[manager]

    def judge(
        self,
        manager: str,
        place: Place,
        rows: Mapping[Bucket, Sequence[ShadowRequests]],
        only: Mapping[Bucket, Sequence[ShadowRequests]],
        before: Mapping[Bucket, tuple[int, bytes]],
        judged: Iterable[tuple[Any, Bucket, Sequence[tuple[Decision | QuietSecond, str]], Any]],
    ) -> None:
        """Judge the seconds that came since the last call, in the buckets of one quota manager.

        Args:
            manager: text of the manager.
            place: the same as values.
            rows: requests by the bucket in which they count in force.
            only: requests by the bucket in which they count under the shadow quotas only.
            before: the states of the enforced buckets before these seconds, each after its time to be forgotten.
            judged: the enforced buckets with their seconds, all of `rows`.
        """
        own, others = self._own.get(manager, {}), dict(only)
        for _, bucket, seconds, _ in judged:
            of_bucket, extra = rows[bucket], others.pop(bucket, ())
            if not extra and bucket not in own:
                if len(of_bucket) == 1 and self._is_surely_alike(place[2], of_bucket[0], seconds):
                    continue
                if all(row[3] is not None and row[3].is_enforced for row in of_bucket):
                    continue
            is_alike = not extra and all(row[3] is not None for row in of_bucket)
            pieces = _pieces((*of_bucket, *extra))
            stored = before.get(bucket)
            enforced = [second for second, _ in seconds]
            self._judge(manager, place, bucket, pieces, enforced, stored, is_alike=is_alike)
        for bucket, extra in others.items():
            stored = before.get(bucket)
            self._judge(manager, place, bucket, _pieces(extra), (), stored, is_alike=False)

    def _judge(
        self,
        manager: str,
        place: Place,
        bucket: Bucket,
        pieces: Sequence[ShadowPiece],
        enforced: Sequence[Decision | QuietSecond],
        before: tuple[int, bytes] | None,
        *,
        is_alike: bool,
    ) -> None:
        """Judge the seconds of one bucket; `is_alike` if its requests are the same under both sets of quotas."""
        own = self._own.get(manager, {}).get(bucket)
        is_shared = own is None and is_alike and place[2] is not QuotaType.CONTROLLER_MUTATION
        if is_shared and self._are_surely_below(place[2], pieces, enforced):
            return
        after = self._judged(place, bucket, pieces, enforced, own or _copied(place[2], before))
        if not is_shared:
            self._own.setdefault(manager, {})[bucket] = after

    def _is_surely_alike(
        self,
        quota_type: QuotaType,
        row: ShadowRequests,
        seconds: Sequence[tuple[Decision | QuietSecond, str]],
    ) -> bool:
        """Whether a client's only second has the same verdict under both, as nearly all have; written for speed."""
        limit = row[3]
        if limit is None:
            return False
        if limit[4]:  # is_enforced
            return True
        second = seconds[0][0]
        if quota_type is QuotaType.CONTROLLER_MUTATION or not isinstance(second, QuietSecond):
            return False
        return limit[0] is None or second[2] * SURELY_BELOW < limit[0] * self._share(quota_type, row[1])

    def _share(self, quota_type: QuotaType, rate_config: str | None) -> float:
        """The part of a limit below which a rate is not near it, for any window; 0 for windows of 2 ms or less."""
        share = self._shares.get((quota_type, rate_config))
        if share is None:
            config = self._config_of(quota_type, rate_config)
            padded_ms = (config.num_samples - 1) * config.window_ms
            share = 1 - MARGIN_MS / padded_ms if padded_ms > MARGIN_MS else 0.0
            self._shares[quota_type, rate_config] = share
        return share

    def _are_surely_below(
        self, quota_type: QuotaType, pieces: Sequence[ShadowPiece], enforced: Sequence[Decision | QuietSecond]
    ) -> bool:
        """Whether the enforced ring shows that no rate comes near the shadow limit, and nothing was throttled."""
        if any(not isinstance(second, QuietSecond) for second in enforced):
            return False
        limits = [piece.limit.limit_per_s for piece in pieces if piece.limit.limit_per_s is not None]
        # The rate of a second is that of its largest share of the limit: the highest only under one enforced limit.
        if len({piece.limit.inferred_limit for piece in pieces}) > 1:
            return False
        allowed = min(limits, default=float("inf")) * self._share(quota_type, pieces[0].rate_config)
        return all(second.rate_per_s * SURELY_BELOW < allowed for second in enforced)

    def _judged(
        self,
        place: Place,
        bucket: Bucket,
        pieces: Iterable[ShadowPiece],
        enforced: Iterable[Decision | QuietSecond],
        own: _Own,
    ) -> _Own:
        """Judge all seconds; returns the ring after them."""
        quota_type, in_force = place[2], dict(map(_enforced, enforced))
        folded_ms, forget_at_ms, config_name, state = own
        replay: ShadowReplay | None = None
        for second_ms, group in groupby(
            sorted(pieces, key=attrgetter("second_ms")), key=attrgetter("second_ms")
        ):
            of_second = list(group)
            if second_ms < folded_ms:
                continue  # a late line: the replay of the enforced bucket does not fold it either
            config = self._config_of(quota_type, of_second[0].rate_config)
            if replay is None or config.name != config_name:
                replay = ShadowReplay(quota_type, config, state if config.name == config_name else None)
                config_name = config.name
            judged = replay.judge(second_ms, [ShadowPart(each.points, each.limit) for each in of_second])
            folded_ms = second_ms + 1_000
            forget_at_ms = folded_ms + remembers_ms(quota_type, config)
            is_warm = self._is_warm(second_ms, config) and not any(each.has_gap for each in of_second)
            self._add(place, bucket, judged, in_force.pop(second_ms, Enforced()), is_warm=is_warm)
        config = self._config_of(quota_type, None)
        for second_ms, decided in in_force.items():  # here no request counts in the bucket
            nothing = ShadowSecond(second_ms, None)
            self._add(place, bucket, nothing, decided, is_warm=self._is_warm(second_ms, config))
        state = state if replay is None else replay.state
        return _Own(folded_ms, forget_at_ms, config_name, state)

    def _is_warm(self, second_ms: int, config: RateConfig) -> bool:
        """Whether no ring of this version can lack a request from before it."""
        return not self._from_ms or second_ms >= self._from_ms + config.horizon_ms

    def _add(
        self, place: Place, bucket: Bucket, judged: ShadowSecond, enforced: Enforced, *, is_warm: bool
    ) -> None:
        if has_row(judged, enforced):
            named = place[0], place[1], place[2].value
            self._rows.append(ShadowRow(named, bucket, judged, enforced, is_warm))


def _pieces(rows: Iterable[ShadowRequests]) -> list[ShadowPiece]:
    """The requests that have a limit by the shadow quotas."""
    return [
        ShadowPiece(governed.second_ms, governed.points, limit, rate_config, bool(governed.governing.gaps))
        for governed, rate_config, _, limit in rows
        if limit is not None
    ]


def _copied(quota_type: QuotaType, before: tuple[int, bytes] | None) -> _Own:
    """A ring that begins as a copy of the enforced one; a new one for tokens, or without an enforced one."""
    if before is None or quota_type is QuotaType.CONTROLLER_MUTATION:
        return _NEW
    forget_at_ms, stored = before
    name, state = _decoded(stored)
    return _Own(state[0], forget_at_ms, name, state[1])


def _enforced(second: Decision | QuietSecond) -> tuple[int, Enforced]:
    if isinstance(second, QuietSecond):
        return second.second_ms, Enforced(second.governed.governing.limit_per_s)
    throttles = second.throttled_requests, second.total_throttle_ms, second.throttle_ms
    return second.second_ms, Enforced(second.limit_per_s, *throttles)
