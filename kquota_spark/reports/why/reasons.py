"""Why buckets were throttled: the parts of each cause, and who slowed whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.causes import attribute
from kquota_spark.model.attribution.observed import Observed
from kquota_spark.model.attribution.sharing import fairness, who_slowed_whom
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.before import Before
from kquota_spark.reports.why.kept import kept_reasons
from kquota_spark.reports.why.positions import positions_of_topic
from kquota_spark.reports.why.recorded import COVERED, Recorded, Wanted, limit_at, recorded
from kquota_spark.reports.why.request_counts import RequestCount, request_counts
from kquota_spark.store.reading import Tables

MOST_REQUESTS = 200_000
"""Maximum number of requests of one bucket for which causes are searched: a few seconds for three causes."""


class UseOfKept(Enum):
    """What the kept causes of closed violations are used for."""

    FIRST = "first"
    """They are the answer, and nothing is replayed for it."""
    LAST = "last"
    """They are the answer if the requests are gone."""
    NEVER = "never"


class Bounds(NamedTuple):
    """How much is replayed for one answer."""

    of_bucket: int = MOST_REQUESTS
    """Maximum number of requests of one bucket; a period with more ends after them."""
    of_all: int | None = None
    """Maximum number of requests of all buckets together; buckets beyond it are left out. None for no maximum."""
    of_sharing: int | None = None
    """Number of requests that all replays about shared buckets measure; then no other bucket gets `Reasons.sharing`.

    0 for none, None for all.
    """
    is_sharing_of_steady: bool = False
    """Whether only shared buckets without a named cause get `Reasons.sharing`: sentences need it for no other."""
    reads_lines: bool = False
    """Whether the lines of fetches are read from the log topic again, which takes seconds."""
    kept: UseOfKept = UseOfKept.FIRST


_NOT_COUNTED: Mapping[Wanted, RequestCount] = MappingProxyType({})
OfCluster = tuple[str, Wanted]
"""A cluster id, and a bucket of that cluster with a period."""
ALL = Bounds()
"""All buckets and their clients, each up to `MOST_REQUESTS`."""


class Explained(NamedTuple):
    """The answer about several buckets."""

    found: Mapping[Wanted, Reasons]
    """By what was asked; buckets without recorded requests have no entry."""
    left_out: tuple[Wanted, ...] = ()
    """Those beyond `Bounds.of_all`, in their order."""


def is_covered(bucket: BucketName) -> bool:
    """Whether causes of a bucket can be found: of bandwidth or thread time, without tags of a callback."""
    return bucket.quota_type in COVERED and not bucket.tags


def reasons(
    settings: Settings,
    wanted: Sequence[Wanted],
    bounds: Bounds = ALL,
    counted: Mapping[Wanted, RequestCount] = _NOT_COUNTED,
) -> Explained:
    """Why buckets were throttled; those without recorded requests are left out.

    Each answer depends only on its bucket and its period. If several of `wanted` are the same, it is made once.

    Args:
        settings: where the tables are, and the cluster.
        wanted: buckets and periods, the most important first; those of other quota types have no answer.
        bounds: how much is replayed.
        counted: the requests of those that are counted already, with the same maximum of a bucket.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    chosen = list(dict.fromkeys(one for one in wanted if is_covered(one.bucket)))
    if not chosen or settings.quotas.callback:
        return Explained({})
    with Tables(settings) as tables:
        kept = {} if bounds.kept is UseOfKept.NEVER else kept_reasons(tables, settings.cluster_id, chosen)
        if bounds.kept is UseOfKept.FIRST:
            chosen = [one for one in chosen if one not in kept]
        if kept and (not chosen or tables.location("usage") is None):
            return Explained(kept)
        replayed = _replayed(settings, tables, chosen, bounds, counted)
        return replayed._replace(found={**kept, **replayed.found})


def _replayed(
    settings: Settings,
    tables: Tables,
    chosen: Sequence[Wanted],
    bounds: Bounds,
    counted: Mapping[Wanted, RequestCount],
) -> Explained:
    tables.open("usage")
    new = [one for one in chosen if one not in counted]
    counts = request_counts(tables, settings.cluster_id, new, bounds.of_bucket)
    found_counts = {**counted, **dict(zip(new, counts, strict=True))}
    cut, left_out = _within([(one, found_counts[one]) for one in chosen], bounds)
    before = Before(settings, tables)
    found: dict[Wanted, Reasons] = {}
    left = bounds.of_sharing
    for one, of_one in recorded(settings, list(dict.fromkeys(cut.values()))).items():
        positions = positions_of_topic(settings, tables, one) if bounds.reads_lines else {}
        found[one] = _reasons(one, of_one, before.observed(one, of_one, positions), bounds, left)
        if left is not None and (sharing := found[one].sharing) is not None:
            left -= sharing.measured
    return Explained({asked: found[one] for asked, one in cut.items() if one in found}, left_out)


def reasons_of_clusters(
    settings: Settings, wanted: Sequence[OfCluster], bounds: Bounds = ALL
) -> tuple[dict[OfCluster, Reasons], int]:
    """Why buckets of several clusters were throttled, and how many the bounds left out.

    Args:
        settings: where the tables are.
        wanted: cluster id, bucket and period, the most important first.
        bounds: how much is replayed for each cluster.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    found: dict[OfCluster, Reasons] = {}
    left_out = 0
    for cluster_id in dict.fromkeys(name for name, _ in wanted):
        own = [one for name, one in wanted if name == cluster_id]
        explained = reasons(settings.changed(cluster_id=cluster_id), own, bounds)
        found |= {(cluster_id, one): of_one for one, of_one in explained.found.items()}
        left_out += len(explained.left_out)
    return found, left_out


def _within(
    chosen: Sequence[tuple[Wanted, RequestCount]], bounds: Bounds
) -> tuple[dict[Wanted, Wanted], tuple[Wanted, ...]]:
    """What to replay for each of the first buckets, and the buckets that the bounds leave out.

    A period with too many requests becomes its beginning, at least one second.
    """
    cut: dict[Wanted, Wanted] = {}
    left_out = []
    left = bounds.of_all
    for one, (end_ms, requests) in chosen:
        if left is not None and cut and requests > left:
            left_out.append(one)
            continue
        cut[one] = one if end_ms is None else one._replace(to_ms=max(end_ms, one.from_ms + 1_000))
        left = None if left is None else left - requests
    return cut, tuple(left_out)


def _reasons(one: Wanted, of_one: Recorded, observed: Observed, bounds: Bounds, left: int | None) -> Reasons:
    """The answer about one bucket; `left` is what replays about shared buckets may still measure, None for all."""
    clients = len({request.client for request in of_one.case.requests})
    is_shared = clients > 1 and observed.delay_ms > 0
    attribution = attribute(observed)
    has_sharing = (left is None or left > 0) and not (bounds.is_sharing_of_steady and attribution.named)
    return Reasons(
        one.bucket,
        one.from_ms,
        one.to_ms,
        limit_at(of_one.case, one.to_ms - 1),
        of_one.observed_ms,
        attribution,
        clients,
        who_slowed_whom(of_one.case, of_one.replay) if is_shared and has_sharing else None,
        tuple(fairness(of_one.case, observed.throttles, one.from_ms, one.to_ms)) if is_shared else (),
    )
