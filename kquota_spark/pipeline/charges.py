"""CHARGES: what lines add to the buckets of the four quota types, grouped by client and second before they travel.

A client sends many requests a second. They leave the worker as one row of bytes, not as a row each.

Every request of a client counts for its request quota, and few clients have one: only those that a rule could cover
get such points (`model.request_coverage`), and where there is no rule, nobody does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kquota_spark.formats.charges import charges_of
from kquota_spark.formats.request import Request
from kquota_spark.model.points import Point
from kquota_spark.model.request_coverage import RequestCoverage
from kquota_spark.pipeline.ingest import Line
from kquota_spark.pipeline.known import Known
from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.key_columns import CLIENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLIENT_KEYS = tuple(column.name for column in CLIENT)
CHARGED = Table(
    "charged",
    "some requests of one client in one second; or how far the log of a broker is known, without any",
    (
        *CLIENT,
        Column("record_time", "timestamp", "of the newest of them, UTC"),
        Column("points", "binary", "see `encoded_points`; null for a heartbeat"),
    ),
)
_SCHEMA = CHARGED.arrow_schema()
_ROWS_AT_ONCE = 20_000
_MOST_LINES = 250_000

encoded_points = msgspec.msgpack.Encoder().encode
"""Points as MessagePack."""
decoded_points = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int, int, int, int]]).decode
"""Those points again, as plain tuples in the order of `Point`."""

_Key = tuple[int, str, str, str, str, int]


class Charges:
    """Takes lines and groups what they add. Lines from the future are left out.

    Args:
        coverage: whose thread time is measured.
    """

    def __init__(self, coverage: RequestCoverage) -> None:
        self._covers = _covers_nobody if coverage == RequestCoverage() else coverage.covers
        self._points: defaultdict[_Key, list[Point]] = defaultdict(list)
        self._beats_ms: dict[int, int] = {}
        self._lines = 0

    @property
    def is_full(self) -> bool:
        """Whether so much is held that `batches` should be taken."""
        return self._lines >= _MOST_LINES

    def add(self, lines: Sequence[Line]) -> None:
        """Take lines of the log."""
        self._lines += len(lines)
        covers = self._covers
        for kind, broker_id, is_out_of_time, _, _, request in lines:
            if is_out_of_time:
                continue
            if kind == "request":
                assert broker_id is not None
                user, client_id, second = request.user, request.client_id, request.record_time_ms // 1_000
                charges = charges_of(request, broker_id, is_time_measured=covers(user, client_id))
                for charged_id, quota_type, point in charges:
                    key = (charged_id, quota_type, request.principal_type, user, client_id, second)
                    self._points[key].append(point)
            elif kind == "heartbeat":
                assert broker_id is not None
                time_ms = request.record_time_ms
                self._beats_ms[broker_id] = max(time_ms, self._beats_ms.get(broker_id, time_ms))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows of `CHARGED` of all that was taken since the last time."""
        rows: list[tuple[Any, ...]] = [
            (*key[:-1], max(points)[0] * 1_000, encoded_points(points))
            for key, points in self._points.items()
        ]
        beats = self._beats_ms.items()
        rows += [(broker_id, None, None, None, None, time_ms * 1_000, None) for broker_id, time_ms in beats]
        self._points, self._beats_ms, self._lines = defaultdict(list), {}, 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            columns = zip(*rows[start : start + _ROWS_AT_ONCE], strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _covers_nobody(_user: str, _client_id: str) -> bool:
    return False


def to_charged(requests: DataFrame, load: Callable[[], Known]) -> DataFrame:
    """Rows of `CHARGED` from rows of `requests`; the job makes them of the lines themselves.

    Args:
        requests: rows of `requests`.
        load: called on the workers; gives the quotas.
    """

    def charge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        charges = Charges(load().governor.coverage)
        for batch in batches:
            charges.add([*_lines_of(batch)])
            if charges.is_full:
                yield from charges.batches()
        yield from charges.batches()

    return requests.select(*_OF_LINE, *_OF_REQUEST).mapInArrow(charge, CHARGED.ddl)


_OF_LINE = ("kind", "broker_id", "is_out_of_time")
_NOT_CHARGED = {"api_name", "software_name", "software_version", "topics", "altered_quotas"}
_OF_REQUEST = tuple(name for name in Request._fields if name not in _NOT_CHARGED)


def _lines_of(batch: pa.RecordBatch) -> Iterator[Line]:
    none: list[Any] = [None] * batch.num_rows
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    columns["mutations"] = [
        found and [tuple(each.values()) for each in found] for found in columns["mutations"]
    ]
    requests = map(Request._make, zip(*(columns.get(name, none) for name in Request._fields), strict=True))
    heads = (columns[name] for name in _OF_LINE)
    return map(Line._make, zip(*heads, none, none, requests, strict=True))
