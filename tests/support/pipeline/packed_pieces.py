"""Pieces as GOVERN packs them, of rows of single clients."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from kquota_spark.pipeline.packed_points import points_of
from kquota_spark.pipeline.sent import BucketTags, Manager, Packed, Pieces, Sent, Terms, unpacked_pieces
from tests.support.pipeline.packed import packed_bytes


def packed_pieces(rows: Iterable[tuple[Manager, BucketTags, Sent]]) -> Packed:
    """All rows in one value; it is of one shard of one."""
    pieces, points = Pieces(), []
    for manager, (user_tag, client_tag, tags), sent in rows:
        if manager not in pieces.managers:
            pieces.managers.append(manager)
        terms = Terms(
            sent.limit_per_s, sent.valid_from_ms, sent.valid_to_ms, sent.has_request_quota, sent.gaps, sent.before,
            sent.after, sent.level, sent.rule, sent.rule_version, sent.rate_config, sent.known_through_ms,
        )  # fmt: skip
        pieces.terms_of.append(len(pieces.terms))
        pieces.terms.append(terms)
        pieces.manager_of.append(pieces.managers.index(manager))
        pieces.user_tags.append(user_tag)
        pieces.client_tags.append(client_tag)
        pieces.tags.append(tags)
        pieces.seconds_ms.append(sent.second_ms)
        pieces.users.append(sent.user)
        pieces.client_ids.append(sent.client_id)
        own = points_of(sent.points)
        pieces.counts.append(len(own))
        points += own
    matrix = np.frombuffer(packed_bytes(points), "<i8").reshape(-1, 8)
    [packed] = pieces.by_shard(matrix, 1).values()
    return unpacked_pieces(packed)


def tick(second_ms: int) -> Packed:
    """What a shard gets that has no piece."""
    return msgspec.convert([second_ms], Packed)
