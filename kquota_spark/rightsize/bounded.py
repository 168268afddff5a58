"""The right sizes of a few buckets within a time limit, for readers that do not wait for weeks of tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kquota_spark.enforce.guard_settings import GuardSettings
from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.model.rightsize.target import MOST_DAYS
from kquota_spark.process.time_limit import SlowError
from kquota_spark.rightsize.buckets import BucketKey
from kquota_spark.rightsize.recommended import Recommendation, has_history, recommendations
from kquota_spark.rightsize.windows import Asked
from kquota_spark.store.dated_files import DAY_MS
from kquota_spark.store.reading import Tables

MOST_BUCKETS = 50
"""Maximum number of buckets that are sized at once."""


class Sized(NamedTuple):
    """The right sizes of buckets with two weeks of history or more."""

    found: Mapping[BucketKey, Recommendation] = MappingProxyType({})
    is_slow: bool = False
    """Whether they are left out, because reading four weeks takes too long."""


def sized(
    tables: Tables,
    cluster_id: str,
    to_ms: int,
    buckets: Collection[BucketKey],
    guards: GuardSettings | None = None,
) -> Sized:
    """The right sizes of some buckets, as `kquota rightsize` computes them; see `recommendations`.

    Args:
        tables: with a time limit.
        cluster_id: the cluster.
        to_ms: end of the history, epoch ms; the last whole window before it counts.
        buckets: at most the first `MOST_BUCKETS` of them are read.
        guards: its bounds cap the targets.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    to_ms = to_ms // WINDOW_MS * WINDOW_MS
    chosen = list(dict.fromkeys(buckets))[:MOST_BUCKETS]
    if not chosen:
        return Sized()
    try:
        asked = Asked(cluster_id, max(0, to_ms - MOST_DAYS * DAY_MS), to_ms)
        tables.open("decisions", asked.from_ms)
        if not has_history(tables, asked):
            return Sized()
        found = recommendations(tables, cluster_id, to_ms, guards, buckets=chosen)
    except SlowError:
        return Sized(is_slow=True)
    return Sized({one.place.key: one for one in found if one.size is not None})
