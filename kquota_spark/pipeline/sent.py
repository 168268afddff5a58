"""How governed rows travel to the workers: bucket and one JSON text."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.decision import Stretch
from kquota_spark.model.points import Point
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.model.replay import Governing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id", "bucket_tags")
"""The bucket, as the elements of a JSON array; without tags of a callback the last one is left out."""


class Sent(msgspec.Struct, gc=False):
    """A governed row as it comes to the worker.

    In the row form every cell costs 2 microseconds to hand over and every number of an array another 0.1;
    this is a tenth of that. The points come field by field, because a function over the elements of an array
    runs uncompiled in Spark, at 3 microseconds a point.
    """

    second_ms: int
    user: str
    client_id: str
    valid_from_ms: int
    valid_to_ms: int
    has_request_quota: bool
    points: list[list[int]]
    """Without the last field of `Point`."""
    network_times_us: list[int] | None = None
    """That last field, of a request quota's points only."""
    rule: str | None = None
    rule_version: int | None = None
    level: int | None = None
    limit_per_s: str | None = None
    """As text: JSON has no infinity, and a double comes back from its shortest text without loss."""
    known_through_ms: int | None = None
    rate_config: str | None = None
    """Name of the broker's `RateConfig`."""


received = msgspec.json.Decoder(Sent).decode
"""A governed row, from the text of its column `sent`."""


def quota_type_of(bucket: str) -> QuotaType:
    """The type of a bucket."""
    return QuotaType(msgspec.json.decode(bucket)[KEYS.index("quota_type")])


def as_sent(governed: DataFrame) -> DataFrame:
    """Governed rows as bucket, `sent` (see `Sent`) and second."""
    return governed.select(
        F.to_json(F.array_compact(F.array(*(F.col(name).cast("string") for name in KEYS)))).alias("bucket"),
        F.to_json(_sent()).alias("sent"),
        "second",
    )


def _sent() -> Column:
    """The struct that `Sent` reads."""
    made = {
        "points": F.expr(
            f"array({', '.join(f'CAST(points.{name} AS ARRAY<BIGINT>)' for name in Point._fields[:-1])})"
        ),
        "network_times_us": F.when(
            F.col("quota_type") == QuotaType.REQUEST.value, F.col("points.network_time_us")
        ),
        "limit_per_s": F.col("limit_per_s").cast("string"),
    }
    return F.struct(*(made.get(name, F.col(name)).alias(name) for name in Sent.__struct_fields__))


_point = partial(tuple.__new__, Point)


def stretch_of(sent: Sent) -> Stretch:
    """What `judge_bucket` takes."""
    limit = None if sent.limit_per_s is None else float(sent.limit_per_s)
    governing = Governing(limit, sent.valid_from_ms, sent.valid_to_ms, sent.has_request_quota)
    points = list(map(_point, zip(*sent.points, sent.network_times_us or repeat(0))))  # noqa: B905
    return Stretch(
        sent.second_ms, sent.user, sent.client_id, governing, sent.level, sent.rule, sent.rule_version, points
    )
