"""The bucket of a broker, as rows of tables name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class BucketKey(NamedTuple):
    """Which bucket of which broker; `tags` are a callback's as JSON, empty without one."""

    cluster_id: str
    broker_id: int
    quota_type: str
    user: str
    client_id: str
    tags: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> BucketKey:
        """The key of a row of buckets."""
        return cls(
            row["cluster_id"],
            row["broker_id"],
            row["quota_type"],
            row["bucket_user"],
            row["bucket_client_id"],
            row["bucket_tags"] or "",
        )
