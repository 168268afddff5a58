"""The throttled buckets of each group, most time throttled first: what a group's budget is spent on."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kquota_spark.model.budgets.seconds import SecondSet
from kquota_spark.reports.budgets.own_seconds import BUCKET, Owned, held_hours
from kquota_spark.reports.scope.report_scope import bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.schema.harm import throttled_spans

_KEY = f"owner_no, {BUCKET}"
# The buckets with the most time throttled in the period; the others are not read.
_BUCKETS = f"""
create or replace temp table budget_buckets as
with {throttled_spans(_KEY, "budget_whole")}
select {_KEY}, row_number() over (order by sum(greatest(0, end_ms - start_ms)) desc, {_KEY}) as bucket_no
from spread where list_contains(?::int[], owner_no) group by {_KEY} qualify bucket_no <= ?
"""  # noqa: S608 - names of ours
_OF_BUCKETS = f"""
create or replace temp table budget_whole_buckets as
select * from budget_whole join budget_buckets using ({_KEY})
"""  # noqa: S608 - names of ours
_NAMED = f"select {_KEY}, bucket_no from budget_buckets order by bucket_no"  # noqa: S608 - names of ours


class OwnBucket(NamedTuple):
    """A throttled bucket of a group, and the seconds in which a throttle of a client of the group held in it."""

    group: str
    bucket: BucketName
    throttled: SecondSet


def bucket_seconds(owned: Owned, groups: Collection[str], most: int) -> list[OwnBucket]:
    """The throttled buckets of some groups, most time throttled first.

    Args:
        owned: all groups, of tables that are still open.
        groups: the names of those that count.
        most: maximum number of buckets.

    Raises:
        UserError: the tables cannot be read.
    """
    tables = owned.asked.tables
    numbers = [number for number, name in enumerate(owned.names) if name in groups]
    tables.query(_BUCKETS, [numbers, most])
    tables.query(_OF_BUCKETS)
    found = {
        row["bucket_no"]: OwnBucket(owned.names[row["owner_no"]], bucket_of(row), SecondSet())
        for row in tables.query(_NAMED).dicts()
    }
    for bucket_no, hour, bits in held_hours(tables, "bucket_no", "budget_whole_buckets"):
        found[bucket_no].throttled.add_hour(hour, int(bits, 2))
    return list(found.values())
