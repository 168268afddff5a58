"""The buckets that a question about right sizes is for, and the conditions that they are in SQL."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeAlias

from kquota_spark.store.reading import Tables

BUCKET = "quota_type, bucket_user, bucket_client_id"
"""The columns of a bucket's name."""
SET_VARIABLE = "set variable rightsize_{name} = ?"
"""Sets a value that other queries read."""
_WANTED = """
create or replace temp table rightsize_wanted as
select unnest(?::varchar[]) as quota_type, unnest(?::varchar[]) as bucket_user, unnest(?::varchar[]) as bucket_client_id
"""
# Only a list of names is compared while the files are read. That takes a fifth of the time.
_IS_NAMED = " and list_contains(getvariable('rightsize_names'), {column})"
_IS_WANTED = f"""{_IS_NAMED.format(column="bucket_user")}
  and ({BUCKET}) in (select ({BUCKET}) from rightsize_wanted)"""  # noqa: S608 - names of ours
_IS_CLIENT = _IS_NAMED.format(column='usage."user"')
_IS = " and {column} = getvariable('rightsize_{name}')"


class BucketKey(NamedTuple):
    """The names of a bucket; an empty one does not belong to it."""

    quota_type: str
    user: str
    client_id: str


class BucketFilter(NamedTuple):
    """Buckets by parts of their names; None is any."""

    quota_type: str | None = None
    user: str | None = None
    client_id: str | None = None


Buckets: TypeAlias = Collection[BucketKey] | BucketFilter | None
"""Some buckets; None for all."""


class Place(NamedTuple):
    """A bucket of one broker."""

    broker_id: int
    quota_type: str
    user: str
    client_id: str

    @property
    def key(self) -> BucketKey:
        """The bucket on all brokers."""
        return BucketKey(self.quota_type, self.user, self.client_id)


class Conditions(NamedTuple):
    """What rows have to be, to be added to a `where`."""

    of_bucket: str = ""
    """For rows of buckets, for example of `decisions`."""
    of_client: str = ""
    """For rows of `usage`: a bucket without a user has clients of any user, one without a client id those of any id."""


def choose(tables: Tables, buckets: Buckets) -> None:
    """Set the names that the conditions of `conditions_on` compare with."""
    if isinstance(buckets, BucketFilter):
        for name, value in buckets._asdict().items():
            tables.query(SET_VARIABLE.format(name=name), [value])
    elif buckets is not None:
        tables.query(_WANTED, [[key[place] for key in buckets] for place in range(len(BucketKey._fields))])
        tables.query(SET_VARIABLE.format(name="names"), [sorted({key.user for key in buckets})])


def conditions_on(buckets: Buckets) -> Conditions:
    """The conditions for some buckets and for their clients."""
    if buckets is None:
        return Conditions()
    if not isinstance(buckets, BucketFilter):
        return Conditions(_IS_WANTED, "" if any(not key.user for key in buckets) else _IS_CLIENT)
    columns = (
        ("quota_type", "quota_type", "quota_type"),
        ("user", "bucket_user", 'usage."user"'),
        ("client_id", "bucket_client_id", "usage.client_id"),
    )
    chosen = [(*names, value) for names, value in zip(columns, buckets, strict=True) if value is not None]
    return Conditions(
        "".join(_IS.format(name=name, column=column) for name, column, _, _ in chosen),
        "".join(_IS.format(name=name, column=column) for name, _, column, value in chosen if value),
    )
