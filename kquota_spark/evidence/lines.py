"""The log lines of a bucket, and what each of them charges.

A line is a row of the table `requests` as a mapping. A bundle holds the same mappings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kquota_spark.model.govern.govern import RequestCoverage
from kquota_spark.model.measure.points import Point
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.charges import CLIENT_KEYS, charges_of
from kquota_spark.schema.tables import REQUESTS, USAGE

Line = Mapping[str, Any]

POSITION = ("topic", "partition", "kafka_offset")
"""Where a line is in Kafka."""
LINE_NAMES = (
    *POSITION, "kind", "broker_id", "record_time_ms", "log_time_ms", "principal_type", "user", "client_id", "api_key",
    "api_version", "api_name", "quota_type", "point_kind", "charged_bytes", "request_time_percent", "network_time_us",
    "observed_throttle_ms", "connection", "correlation_id", "mutations", "is_out_of_time",
)  # fmt: skip
"""Columns of `requests` that a line keeps: where it is, who sent it, and what quotas charge."""
_LINES = pa.schema([field for field in REQUESTS.arrow_schema() if field.name in LINE_NAMES])
_USAGE = pa.schema(
    [
        field
        for field in USAGE.arrow_schema()
        if field.name in ("cluster_id", *CLIENT_KEYS, "second", "points")
    ]
)
_EVERYONE = RequestCoverage(is_everyone=True)


class Charge(NamedTuple):
    """What a line charges: the place of the line, the client, and the point."""

    place: int
    client: tuple[Any, ...]
    """The values of `CLIENT_KEYS`; the broker is that of the bucket."""
    point: Point

    @property
    def key(self) -> tuple[str, str, Point]:
        """User, client id and point: two lines with the same are copies of one request."""
        return self.client[3], self.client[4], self.point


def charges(lines: Sequence[Line], broker_id: int, quota_type: QuotaType) -> list[Charge]:
    """What lines charge to one quota manager.

    Args:
        lines: in any order.
        broker_id: the broker; `CONTROLLER_ID` for controller mutations.
        quota_type: the type of quota.
    """
    rows = [
        {**{name: line[name] for name in LINE_NAMES}, "kafka_offset": place}
        for place, line in enumerate(lines)
    ]
    found = charges_of(pa.RecordBatch.from_pylist(rows, schema=_LINES), _EVERYONE)
    names = ("kafka_offset", *CLIENT_KEYS, *Point._fields)
    columns = [found[name].to_pylist() for name in names]
    keys = 1 + len(CLIENT_KEYS)
    return [
        Charge(values[0], values[1:keys], Point._make(values[keys:]))
        for values in zip(*columns, strict=True)
        if values[1] == broker_id and values[2] == quota_type.value
    ]


def usage_of(found: Iterable[Charge], cluster_id: str) -> pa.RecordBatch:
    """Rows of `usage` of some charges, without copies: one row per client and second.

    Args:
        found: charges of one quota manager.
        cluster_id: the cluster of the rows.
    """
    points: dict[tuple[tuple[Any, ...], int], set[Point]] = defaultdict(set)
    for charge in found:
        points[charge.client, charge.point.record_time_ms // 1_000].add(charge.point)
    rows = [
        {
            "cluster_id": cluster_id,
            **dict(zip(CLIENT_KEYS, client, strict=True)),
            "second": second * 1_000_000,
            "points": [point._asdict() for point in sorted(of_second)],
        }
        for (client, second), of_second in points.items()
    ]
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in _USAGE]
    return pa.RecordBatch.from_arrays(arrays, schema=_USAGE)


class Offsets(NamedTuple):
    """The lines of one partition: the first and the last offset, and how many."""

    topic: str
    partition: int
    first: int
    last: int
    lines: int


def offsets_of(lines: Iterable[Line]) -> list[Offsets]:
    """Where lines are in Kafka, by topic and partition."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in lines:
        found[line["topic"], line["partition"]].append(line["kafka_offset"])
    return [
        Offsets(topic, partition, min(offsets), max(offsets), len(offsets))
        for (topic, partition), offsets in sorted(found.items())
    ]
