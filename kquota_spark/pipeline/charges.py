"""CHARGES: what requests add to the buckets of the four quota types, grouped by client and second.

This is the only place that defines it, column by column in Arrow, so a request costs no Python object. Charges leave
the worker as one row of bytes for many clients. With 100,000 client ids, a row for each would cost Spark more than its
verdict.

Every request of a client counts for its request quota, but few clients have one. Only clients that a rule could cover
get such points (`model.govern.govern`); without a rule, no client does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.model.govern.govern import RequestCoverage
from kquota_spark.model.measure.points import CONTROLLER_ID, Point, PointKind
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.known import Known
from kquota_spark.pipeline.packed_points import compressed, decompressed, from_columns, packed
from kquota_spark.schema.columns import Column, Table, arrow_type
from kquota_spark.schema.key_columns import CLIENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLIENT_KEYS = tuple(column.name for column in CLIENT)
CHARGED = Table(
    "charged",
    "some requests of one second; or how far the log of a broker is known, without any",
    (
        Column(
            "place", "int", "of a hash of the client, so that all requests of one second of it come together"
        ),
        Column("record_time", "timestamp", "of the newest of them, UTC"),
        Column("charges", "binary", "see `packed_charges`; null for a heartbeat"),
    ),
)
MOST_PERCENT = 1e8
"""Maximum thread time of a request, percent of a second (11 days); it caps the log's number, which has no bound."""

_SCHEMA = CHARGED.arrow_schema()
_HELD = [
    kind
    for kind in PointKind
    if kind == PointKind.REFUSED_MUTATION
    or PointKind.PERMISSIVE_CREATE_TOPIC <= kind <= PointKind.PERMISSIVE_DELETE_TOPIC
]
_OF_CLIENTS = pa.schema(
    [*(pa.field(column.name, arrow_type(column.type)) for column in CLIENT), pa.field("points", pa.binary())]
)
_MOST_LINES = 250_000
_OF_KIND = ("kind", "is_out_of_time")
_NEEDED = (
    *_OF_KIND, "kafka_offset", *CLIENT_KEYS, "record_time_ms", "log_time_ms", "connection", "correlation_id",
    "charged_bytes", "observed_throttle_ms", "point_kind", "request_time_percent", "network_time_us", "mutations",
)  # fmt: skip
_TYPES: dict[str, Any] = {name: _OF_CLIENTS.field(name).type for name in CLIENT_KEYS}
_Columns = dict[str, Any]


def charges_of(requests: pa.RecordBatch, coverage: RequestCoverage) -> pa.Table:
    """Charges for bytes, for thread time, and for each topic that was created, enlarged, deleted or refused.

    Args:
        requests: rows of `requests` of any kind; those from the future are left out. The request of an unreadable line
            may be known, without its size.
        coverage: the clients that need a measure of thread time.

    Returns:
        One row per charge: `CLIENT_KEYS` with the broker of the bucket, the fields of `Point`, and `kafka_offset`.
    """
    rows = _in_time(requests.select(_NEEDED), "request", "unreadable")
    parts = [_charges(rows.filter(rows["quota_type"].is_valid()), {})]
    if coverage != RequestCoverage():
        parts.append(_thread_time(rows, coverage))
    if rows["mutations"].null_count < rows.num_rows:
        parts.append(_mutations(rows.filter(rows["mutations"].is_valid())))
    return pa.concat_tables(map(pa.table, parts))


def _in_time(requests: pa.RecordBatch, *kinds: str) -> pa.RecordBatch:
    return requests.filter(pc.field("kind").isin(kinds) & ~pc.field("is_out_of_time"))


def _thread_time(rows: pa.RecordBatch, coverage: RequestCoverage) -> _Columns:
    rows = rows.filter(pc.and_(rows["network_time_us"].is_valid(), _is_covered(rows, coverage)))
    percent = np.minimum(rows["request_time_percent"].to_numpy(), MOST_PERCENT)
    is_shared = pc.or_(rows["quota_type"].is_valid(), rows["mutations"].is_valid())
    kind = pc.if_else(is_shared, int(PointKind.SHARED_REQUEST), int(PointKind.REQUEST))
    return _charges(
        rows,
        {
            "quota_type": _same(QuotaType.REQUEST.value, rows.num_rows),
            "amount": pa.array(np.rint(percent * 10_000).astype(np.int64)),
            "kind": kind,
            "network_time_us": rows["network_time_us"],
        },
    )


def _is_covered(rows: pa.RecordBatch, coverage: RequestCoverage) -> Any:
    if coverage.is_everyone:
        return _same(True, rows.num_rows)
    users, client_ids = (
        pa.array(sorted(each), pa.string()) for each in (coverage.users, coverage.client_ids)
    )
    return pc.or_(pc.is_in(rows["user"], users), pc.is_in(rows["client_id"], client_ids))


def _mutations(rows: pa.RecordBatch) -> _Columns:
    mutations: Any = rows["mutations"]
    rows, mutation = rows.take(pc.list_parent_indices(mutations)), pc.list_flatten(mutations)
    kind: Any = pc.struct_field(mutation, "point_kind")
    # The throttle in the answer is that of the refused topics; the others were not throttled.
    is_held = np.isin(kind, _HELD)
    return _charges(
        rows,
        {
            "broker_id": _same(CONTROLLER_ID, rows.num_rows),
            "quota_type": _same(QuotaType.CONTROLLER_MUTATION.value, rows.num_rows),
            "connection_hash": pc.struct_field(mutation, "topic_hash"),
            "amount": pc.struct_field(mutation, "partitions"),
            "observed_throttle_ms": pa.array(np.where(is_held, rows["observed_throttle_ms"], 0)),
            "kind": kind,
        },
    )


def _charges(rows: pa.RecordBatch, changed: _Columns) -> _Columns:
    """A charge for each row: for its bytes, except in the columns of `changed`."""
    columns: _Columns = {
        **{name: rows[name] for name in CLIENT_KEYS},
        "kafka_offset": rows["kafka_offset"],
        "record_time_ms": rows["record_time_ms"],
        "log_time_ms": rows["log_time_ms"],
        "connection_hash": changed.get("connection_hash", _hashes(rows["connection"])),
        "correlation_id": rows["correlation_id"],
        "amount": rows["charged_bytes"].fill_null(0),
        "observed_throttle_ms": rows["observed_throttle_ms"],
        "kind": rows["point_kind"].fill_null(0),
        "network_time_us": _same(0, rows.num_rows),
        **changed,
    }
    return {name: column.cast(_TYPES.get(name, pa.int64())) for name, column in columns.items()}


def _hashes(connections: Any) -> Any:
    """Small numbers for connections: they order requests of one millisecond, and distinguish copies."""
    encoded = connections.cast(pa.binary()).dictionary_encode()
    hashes = pa.array(map(crc32, encoded.dictionary.to_pylist()), pa.int64())
    return hashes.take(encoded.indices)


def _same(value: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value), count)


class Charges:
    """Collects rows of `requests` and groups their charges.

    Args:
        coverage: the clients that need a measure of thread time.
        places: number of different places, see `CHARGED`.
    """

    def __init__(self, coverage: RequestCoverage, places: int) -> None:
        self._coverage, self._places = coverage, places
        self._charges: list[pa.Table] = []
        self._beats: list[pa.Table] = []
        self._lines = 0

    @property
    def is_full(self) -> bool:
        """Whether it holds so many lines that `batches` should be called."""
        return self._lines >= _MOST_LINES

    def add(self, requests: pa.RecordBatch) -> None:
        """Add rows of `requests`."""
        self._lines += requests.num_rows
        self._charges.append(charges_of(requests, self._coverage))
        beats = _in_time(requests.select([*_OF_KIND, "broker_id", "record_time_ms"]), "heartbeat")
        self._beats.append(pa.Table.from_batches([beats]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows of `CHARGED` for everything that was added since the last call."""
        if not self._lines:
            return
        beats = pa.concat_tables(self._beats).group_by("broker_id").aggregate([("record_time_ms", "max")])
        charged = _grouped(pa.concat_tables(self._charges))
        self._charges, self._beats, self._lines = [], [], 0
        if charged.num_rows:
            yield _by_place(charged, self._places)
        if beats.num_rows:
            newest = _in_us(beats["record_time_ms_max"].to_numpy())
            yield _of_columns([None] * beats.num_rows, newest, [None] * beats.num_rows)


def _grouped(charges: pa.Table) -> pa.Table:
    """The charges of each client in each second: rows of `_OF_CLIENTS`, with the second and the newest time."""
    second = pc.divide(charges["record_time_ms"], 1_000)
    found = (
        charges.append_column("second", second)
        .group_by([*CLIENT_KEYS, "second"], use_threads=False)
        .aggregate([("record_time_ms", "max"), *((name, "list") for name in Point._fields)])
    )
    lists: list[Any] = [found[f"{name}_list"].combine_chunks() for name in Point._fields]
    points = packed(from_columns([each.flatten() for each in lists]), lists[0].offsets)
    return found.select([*CLIENT_KEYS, "second", "record_time_ms_max"]).append_column("points", points)


def _by_place(clients: pa.Table, places: int) -> pa.RecordBatch:
    """Rows of `CHARGED`, one per place and second."""
    names = (
        [text or b"" for text in clients[name].cast(pa.binary()).to_pylist()]
        for name in ("user", "client_id")
    )
    of_client = zip(clients["broker_id"].to_pylist(), *names, strict=True)
    place: Any = np.array(
        [crc32(client_id, crc32(user, broker & 0xFFFF)) for broker, user, client_id in of_client], np.int64
    )
    place %= places
    second: Any = clients["second"].to_numpy()
    order = np.lexsort((second, place))
    in_order = clients.select(_OF_CLIENTS.names).take(order).combine_chunks().cast(_OF_CLIENTS)
    [rows] = in_order.to_batches()
    is_first = (np.diff(place[order]) != 0) | (np.diff(second[order]) != 0)
    starts = np.insert(np.flatnonzero(is_first) + 1, 0, 0)
    ends = np.append(starts[1:], len(order))
    newest_ms = np.maximum.reduceat(clients["record_time_ms_max"].to_numpy()[order], starts)
    packed_rows = [
        packed_charges(rows.slice(start, end - start))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return _of_columns(place[order][starts].tolist(), _in_us(newest_ms), packed_rows)


def packed_charges(rows: pa.RecordBatch) -> bytes:
    """Rows of clients as bytes: a compressed Arrow batch."""
    return compressed(rows.serialize())


def unpacked_charges(data: bytes) -> pa.RecordBatch:
    """Rows of clients from bytes: the keys of a client, and `points`, see `pipeline.packed_points`."""
    return pa.ipc.read_record_batch(decompressed(data), _OF_CLIENTS)


def _in_us(times_ms: Any) -> Any:
    return pa.array(times_ms * 1_000, pa.int64()).cast(_SCHEMA.field("record_time").type)


def _of_columns(places: list[Any], record_times: Any, charges: list[Any]) -> pa.RecordBatch:
    arrays: list[Any] = [pa.array(places, pa.int32()), record_times, pa.array(charges, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def to_charged(requests: DataFrame, load: Callable[[], Known], places: int) -> DataFrame:
    """Rows of `CHARGED` from rows of `requests`; the job creates them while it writes that table."""

    def charge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        charges = Charges(load().coverage, places)
        for batch in batches:
            charges.add(batch)
            if charges.is_full:
                yield from charges.batches()
        yield from charges.batches()

    return requests.select(*_NEEDED).mapInArrow(charge, CHARGED.ddl)
