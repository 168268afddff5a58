"""The right sizes for a report: of the buckets that were throttled most in its period, and of those used least.

The history is the four weeks before the end of the report. So it is read within a time limit, a fifth of what the
report took before, and for a few buckets only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kquota_spark.enforce.guard_settings import GuardSettings
from kquota_spark.enforcement.policies import guards_of
from kquota_spark.errors import UserError
from kquota_spark.model.rightsize.demand import WINDOW_MS
from kquota_spark.model.rightsize.target import RightSize
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.rightsize.bounded import Sized, sized
from kquota_spark.rightsize.buckets import BucketKey

MOST_THROTTLED, MOST_UNUSED = 20, 10
"""Maximum number of buckets that were throttled in the period, and of others."""
LEAST_S, MOST_S = 3.0, 10.0
_SHARE = 0.2
"""The time limit as share of the time that the report has taken, within these bounds, s."""
_CHOSEN = """
with buckets as (
  select quota_type, bucket_user, bucket_client_id, sum(rows_with_throttle) > 0 as is_throttled,
         sum(delay_ms) as delay_ms, sum(rows_with_throttle) as throttled_rows,
         max(quota_used_percent) as used_percent
  from places where bucket_tags = '' and is_log and quota_type in ('produce', 'fetch') and limit_per_s is not null
    and coalesce(bucket_user = ?, true)
  group by all
), numbered as (
  select *, row_number() over (
    partition by is_throttled
    order by delay_ms desc, throttled_rows desc, used_percent, quota_type, bucket_user, bucket_client_id) as place
  from buckets
)
select quota_type, bucket_user, bucket_client_id from numbered where place <= if(is_throttled, ?, ?)
order by is_throttled desc, place
"""


class PeriodSizes(NamedTuple):
    """The right sizes of a report."""

    sized: Sized
    of_buckets: int
    """Number of the buckets that were chosen, with and without two weeks of history."""
    to_ms: int
    """End of their history, epoch ms."""

    @property
    def by_bucket(self) -> Mapping[BucketName, RightSize]:
        """The right sizes by the bucket's name in the report."""
        return {BucketName(*key): one.size for key, one in self.sized.found.items() if one.size is not None}


def period_sizes(scope: Scope) -> PeriodSizes:
    """The right sizes of the chosen buckets; on a tenant's page only of those with the tenant's name.

    A bucket without limit, or of a quota callback, has none.
    """
    others = 0 if scope.tenant is not None else MOST_UNUSED
    rows = scope.tables.query(_CHOSEN, [scope.tenant, MOST_THROTTLED, others]).rows
    to_ms = scope.covered.to_ms // WINDOW_MS * WINDOW_MS
    most_s = min(max(_SHARE * scope.tables.spent_s, LEAST_S), MOST_S)
    with scope.tables.another(most_s) as tables:
        found = sized(tables, scope.cluster_id, to_ms, [BucketKey(*row) for row in rows], _guards(scope))
    return PeriodSizes(found, len(rows), to_ms)


def _guards(scope: Scope) -> GuardSettings | None:
    try:
        return guards_of(scope.settings)
    except UserError:  # `kquota enforce` reports it; the report is not about policies
        return None
