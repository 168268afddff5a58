"""GOVERN beside the enforced quotas: the limit by the shadow quotas, and the bucket where it is another one.

The shadow quotas hold at all times. So most clients get their answer in columns, once for all clients of the same terms
that no shadow quota names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import Any, Protocol

import numpy as np

from kquota_spark.model.govern.govern import Governed, RuleGovernor
from kquota_spark.model.loops.shadow_bucket import ShadowLimit
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.pipeline.shadow.moved import Bucket, MovedPieces, MovedTerms, Numbers, numbered
from kquota_spark.pipeline.shadow.rules import Shadow, Shadowed, shadow_limit

_MOVED = -1
Client = tuple[str, int, str, str | None, str, str]
"""Cluster, broker, quota type, principal type, user and client id."""


class EnforcedTerms(Protocol):
    """What governs some pieces in force; see `pipeline.sent.Terms`."""

    @property
    def limit_per_s(self) -> float | None:
        """The limit."""

    @property
    def has_request_quota(self) -> bool:
        """Whether the client also has a request quota."""

    @property
    def level(self) -> int | None:
        """Level of the rule."""

    @property
    def rule(self) -> str | None:
        """Name of the rule."""


class GovernedColumns(Protocol):
    """Pieces with what governs them in force; see `pipeline.sent.Pieces`."""

    managers: list[Any]
    terms: list[Any]
    manager_of: list[int]
    user_tags: list[str]
    client_tags: list[str]
    seconds_ms: list[int]
    users: list[str]
    client_ids: list[str]
    terms_of: list[int]
    counts: list[int]
    shadowed: Shadowed | None


class Beside:
    """The shadow quotas beside the pieces of one batch."""

    def __init__(self, shadow: Shadow, pieces: GovernedColumns) -> None:
        self._shadow, self._pieces = shadow, pieces
        self._limits: dict[ShadowLimit, int] = {}
        self._limit_of: list[int] = []
        self._moved: list[int] = []
        """Pieces that count elsewhere."""
        self._tags: list[Bucket] = []
        """The bucket of each there."""
        self._governor = shadow.governor if isinstance(shadow.governor, RuleGovernor) else None

    @property
    def is_lasting(self) -> bool:
        """Whether the same limits hold at all times, so that pieces need not be added one by one."""
        return self._governor is not None

    def add(
        self, client: Client, governed: Governed, time_ms: int, tags_of: Callable[[Any], Bucket]
    ) -> int | None:
        """Add the limit of the piece that was added last, by a quota callback.

        Args:
            client: the client that made the requests.
            governed: what governs it in force.
            time_ms: time of its first point, epoch ms.
            tags_of: the tags of a bucket.

        Returns:
            The time (epoch ms) until which the same limits govern the client; None for no end.
        """
        _, broker_id, _, principal_type, user, client_id = client
        pieces, until_ms = self._pieces, governed.governing.valid_to_ms
        quota_type = pieces.managers[pieces.manager_of[-1]].quota_type
        principal = Principal(principal_type or "User", user)
        found = self._shadow.governor.govern(broker_id, quota_type, principal, client_id, time_ms)
        ends_ms = found.governing.valid_to_ms
        if ends_ms is not None:
            until_ms = ends_ms if until_ms is None else min(until_ms, ends_ms)
        if found.bucket != governed.bucket:
            self._moved.append(len(self._limit_of))
            self._tags.append(tags_of(found.bucket))
        self._limit_of.append(self._place_of(found, pieces.terms[pieces.terms_of[-1]]))
        return until_ms

    def finish(self, points: Any, texts: Sequence[str]) -> MovedPieces | None:
        """Give the pieces their limits; returns those that count in another bucket, None for none.

        Args:
            points: the points of all pieces.
            texts: the text of each manager.
        """
        limit_of = np.array(self._limit_of, np.int64)
        if self._governor is not None:
            limit_of = self._answered(self._governor)
        moved = np.array(self._moved, np.int64)
        found = self._moved_pieces(limit_of, moved, points, texts) if len(moved) else None
        limit_of[moved] = _MOVED
        self._give(limit_of)
        return found

    def _answered(self, governor: RuleGovernor) -> Numbers:
        """The limit of each piece by rules that hold at all times; `_moved` gets those that count elsewhere."""
        pieces = self._pieces
        terms_of, manager_of = np.array(pieces.terms_of, np.int64), np.array(pieces.manager_of, np.int64)
        is_asked = self._are_differing()
        same = np.zeros(len(pieces.terms), np.int64)
        for place in np.unique(terms_of[~is_asked]).tolist():
            same[place] = self._limits.setdefault(_limit_of_terms(pieces.terms[place]), len(self._limits))
        limit_of: Numbers = same[terms_of]
        is_named = is_asked & _are_named(governor.named, pieces)
        for place in np.flatnonzero(is_named).tolist():
            found = self._governed(governor, place)
            limit_of[place] = self._place_of(found, pieces.terms[pieces.terms_of[place]])
            tags = found.bucket.user, found.bucket.client_id
            if tags != (pieces.user_tags[place], pieces.client_tags[place]):
                self._moved.append(place)
                self._tags.append((*tags, None))
        self._answer_strangers(
            governor, is_asked & ~is_named, terms_of * len(pieces.managers) + manager_of, limit_of
        )
        return limit_of

    def _answer_strangers(
        self, governor: RuleGovernor, is_stranger: Any, keys: Numbers, limit_of: Numbers
    ) -> None:
        """Do the same for clients that no shadow quota names: one answer per terms and manager (`keys`)."""
        if not is_stranger.any():
            return
        pieces, places = self._pieces, np.flatnonzero(is_stranger)
        _, firsts, key_of = np.unique(keys[places], return_index=True, return_inverse=True)
        answers = []
        for place in places[firsts].tolist():
            found = self._governed(governor, place)
            limit = self._place_of(found, pieces.terms[pieces.terms_of[place]])
            answers.append((limit, bool(found.bucket.user), bool(found.bucket.client_id)))
        limits, with_user, with_client = (np.array(column)[key_of] for column in zip(*answers, strict=True))
        limit_of[places] = limits
        is_user_other = _are_filled(pieces.user_tags)[places] != with_user
        is_elsewhere = is_user_other | (_are_filled(pieces.client_tags)[places] != with_client)
        elsewhere = places[is_elsewhere].tolist()
        has_user, has_client = with_user[is_elsewhere].tolist(), with_client[is_elsewhere].tolist()
        users = [pieces.users[place] if has else "" for place, has in zip(elsewhere, has_user, strict=True)]
        clients = [
            pieces.client_ids[place] if has else "" for place, has in zip(elsewhere, has_client, strict=True)
        ]
        self._moved += elsewhere
        self._tags += zip(users, clients, repeat(None))

    def _governed(self, governor: RuleGovernor, place: int) -> Governed:
        """What governs the client of a piece by the shadow quotas; the type of the principal makes no difference."""
        pieces = self._pieces
        manager = pieces.managers[pieces.manager_of[place]]
        principal = Principal("User", pieces.users[place])
        return governor.govern(
            manager.broker_id,
            manager.quota_type,
            principal,
            pieces.client_ids[place],
            pieces.seconds_ms[place],
        )

    def _are_differing(self) -> Any:
        """Whether the quotas of each piece's client can differ."""
        is_everyone, users, client_ids = self._shadow.differing
        pieces = self._pieces
        if is_everyone:
            return np.ones(len(pieces.users), bool)
        return _are_in(users, pieces.users) | _are_in(client_ids, pieces.client_ids)

    def _place_of(self, found: Governed, terms: EnforcedTerms) -> int:
        limit = shadow_limit(found, terms.limit_per_s, has_request_quota=terms.has_request_quota)
        return self._limits.setdefault(limit, len(self._limits))

    def _give(self, limit_of: Numbers) -> None:
        """Give each of the terms its limit; terms of pieces with several limits are divided."""
        pieces = self._pieces
        width = len(self._limits) + 1
        keys = np.array(pieces.terms_of, np.int64) * width + limit_of + 1
        found, places = numbered(keys)
        pieces.terms_of = places.tolist()
        pieces.terms = [pieces.terms[key // width] for key in found.tolist()]
        pieces.shadowed = Shadowed(*self._shadow.pin, [*self._limits], (found % width - 1).tolist())

    def _moved_pieces(
        self, limit_of: Numbers, moved: Numbers, points: Any, texts: Sequence[str]
    ) -> MovedPieces:
        pieces = self._pieces
        buckets: dict[tuple[int, Bucket], int] = {}
        managers = map(pieces.manager_of.__getitem__, self._moved)
        named = zip(managers, self._tags, strict=True)
        firsts = np.fromiter(map(buckets.setdefault, named, count()), np.int64, len(moved))
        _, of_bucket = numbered(firsts)
        width = len(self._limits)
        terms, of_terms = numbered(np.array(pieces.terms_of, np.int64)[moved] * width + limit_of[moved])
        points_of = np.array(pieces.counts, np.int64)
        seconds_ms = np.array(pieces.seconds_ms, np.int64)
        limits = [*self._limits]
        return MovedPieces(
            texts,
            [(manager, *tags) for manager, tags in buckets],
            [
                MovedTerms(limits[key % width], *_windows_and_gap(pieces.terms[key // width]))
                for key in terms.tolist()
            ],
            np.column_stack((of_bucket, of_terms, seconds_ms[moved], points_of[moved])),
            (np.cumsum(points_of) - points_of)[moved],
            points,
        )


def _limit_of_terms(terms: EnforcedTerms) -> ShadowLimit:
    """The limit of a client for which the quotas cannot differ."""
    inferred_limit = None if terms.has_request_quota else terms.limit_per_s
    return ShadowLimit(
        terms.limit_per_s, terms.level, terms.rule, terms.has_request_quota, is_enforced=True,
        inferred_limit=inferred_limit,
    )  # fmt: skip


def _windows_and_gap(terms: Any) -> tuple[str | None, bool]:
    """The name of the windows, and whether a gap of the log makes rings incomplete."""
    return terms.rate_config, bool(terms.gaps)


def _are_in(names: frozenset[Any], values: list[str]) -> Any:
    if names.isdisjoint(values):
        return np.zeros(len(values), bool)
    return np.fromiter(map(names.__contains__, values), bool, len(values))


def _are_named(named: frozenset[object], pieces: GovernedColumns) -> Any:
    """Whether a shadow quota names each piece's user or client id."""
    return _are_in(named, pieces.users) | _are_in(named, pieces.client_ids)


def _are_filled(tags: list[str]) -> Any:
    return np.fromiter(map(bool, tags), bool, len(tags))
