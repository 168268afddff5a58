"""Why buckets were throttled: the parts of each cause, and who slowed whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kquota_spark.config.settings import Settings
from kquota_spark.model.attribution.causes import Attribution, attribute
from kquota_spark.model.attribution.sharing import Fairness, Sharing, fairness, who_slowed_whom
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.before import Before
from kquota_spark.reports.why.positions import positions_of_topic
from kquota_spark.reports.why.recorded import COVERED, Wanted, limit_at, recorded
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

MOST_REQUESTS = 200_000
"""Maximum number of requests of one bucket for which causes are searched: a few seconds for three causes."""
_REACHED = f"""
select min(second_ms) from (
  select epoch_ms(usage.second) as second_ms, sum(sum(requests)) over (order by epoch_ms(usage.second)) as reached
  from usage
  where cluster_id = ? and {FROM_LOG} and quota_type = ? and (? = '' or "user" = ?) and (? = '' or client_id = ?)
    and usage.second >= make_timestamptz(?::bigint) and usage.second < make_timestamptz(?::bigint)
  group by 1
) where reached > ?
"""  # noqa: S608 - names of ours


@dataclass(frozen=True, slots=True)
class Reasons:
    """One bucket in one period; times are epoch ms."""

    bucket: BucketName
    from_ms: int
    to_ms: int
    limit_per_s: float | None
    """The limit at the end of the period, on each broker."""
    delay_ms: int
    """Total delay by brokers."""
    attribution: Attribution
    sharing: Sharing | None = None
    """None for a bucket with one client."""
    fairness: tuple[Fairness, ...] = ()
    """One row per hour of a shared bucket."""


def is_covered(bucket: BucketName) -> bool:
    """Whether causes of a bucket can be found: of bandwidth or thread time, without tags of a callback."""
    return bucket.quota_type in COVERED and not bucket.tags


def reasons(
    settings: Settings,
    wanted: Sequence[Wanted],
    most_requests: int = MOST_REQUESTS,
    *,
    reads_lines: bool = False,
) -> list[Reasons]:
    """Why buckets were throttled; those without recorded requests are left out.

    Args:
        settings: where the tables are, and the cluster.
        wanted: buckets and periods; those of other quota types are left out.
        most_requests: maximum number of requests of a bucket; a period with more ends after them.
        reads_lines: whether the lines of fetches are read from the log topic again, which takes seconds.

    Raises:
        UserError: a table is missing or cannot be read.
    """
    chosen = [one for one in wanted if is_covered(one.bucket)]
    if not chosen or settings.quotas.callback:
        return []
    found = []
    with Tables(settings) as tables:
        tables.open("usage")
        before = Before(settings, tables)
        cut = [_cut(settings, tables, one, most_requests) for one in chosen]
        for one, of_one in recorded(settings, cut).items():
            positions = positions_of_topic(settings, tables, one) if reads_lines else {}
            observed = before.observed(one, of_one, positions)
            clients = {request.client for request in of_one.case.requests}
            is_shared = len(clients) > 1 and observed.delay_ms > 0
            found.append(
                Reasons(
                    one.bucket,
                    one.from_ms,
                    one.to_ms,
                    limit_at(of_one.case, one.to_ms - 1),
                    of_one.observed_ms,
                    attribute(observed),
                    who_slowed_whom(of_one.case, of_one.replay) if is_shared else None,
                    tuple(fairness(of_one.case, observed.throttles, one.from_ms, one.to_ms))
                    if is_shared
                    else (),
                )
            )
    return found


def _cut(settings: Settings, tables: Tables, one: Wanted, most_requests: int) -> Wanted:
    """The beginning of a period that has at most so many requests; at least one second."""
    bucket = one.bucket
    names = bucket.user, bucket.user, bucket.client_id, bucket.client_id
    during = one.from_ms * 1_000, one.to_ms * 1_000
    asked = [settings.cluster_id, bucket.quota_type, *names, *during, most_requests]
    end_ms = tables.query(_REACHED, asked).rows[0][0]
    return one if end_ms is None else one._replace(to_ms=max(end_ms, one.from_ms + 1_000))
