"""LINES in Kafka's own layout, as a column for each field of `Request`: only the values of a line are objects.

Nearly every line has that layout. Any other line is left to `RequestLogParser.parse`, which gives a reason: another
layout, a time that the zone shows twice or never, or anything that the parser refuses. Both combine the same parts of a
line (`JsonForm.parts`), here by column, and must give the same result. A property test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kquota_spark.formats.request_log.clock import EARLIEST_MS, LATEST_MS, MILLISECONDS
from kquota_spark.formats.request_log.json_form import PARTS, Parts
from kquota_spark.formats.request_log.line import (
    BODY,
    END,
    MAX_LINE_BYTES,
    MILLISECOND,
    SECOND,
    START,
    USUAL_END,
    USUAL_START,
    RequestLogParser,
)
from kquota_spark.formats.request_log.request import Request, Unreadable
from kquota_spark.schema.tables import REQUESTS

_SCHEMA = REQUESTS.arrow_schema()
_AS_THEY_ARE = tuple(name for name in PARTS if name in Request._fields)
_FLOAT_PARTS = ("local_ms", "remote_ms", "response_queue_ms", "send_ms", "waits_from_ms")
_INT_PARTS = ("throttle_ms", "in_response_ms")
_NO_TIME = -1
Numbers = npt.NDArray[np.int64]


class LineColumns(NamedTuple):
    """Lines that were read.

    Attributes:
        places: positions of these lines among the given ones, in order.
        columns: the columns of `Request`.
    """

    places: Numbers
    columns: dict[str, Any]


def line_columns(lines: Any, parser: RequestLogParser) -> LineColumns:
    """Read the lines of one time zone that are in Kafka's own layout, with nothing odd.

    Args:
        lines: an Arrow array of bytes, with nulls.
        parser: the parser of their zone.
    """
    places = np.flatnonzero(_are_usual(lines).to_numpy(zero_copy_only=False))
    log_ms = _log_times_ms(lines, parser)[places]
    bodies: list[bytes] = pc.binary_slice(lines, BODY.start, BODY.stop).to_pylist() if len(places) else []
    if len(places) < len(lines):
        bodies = [bodies[place] for place in places.tolist()]
    found, are_read = _parts(bodies, parser)
    places, log_ms = places[are_read], log_ms[are_read]
    if not found:
        return LineColumns(places, {})
    columns = dict(zip(PARTS, zip(*found, strict=True), strict=True))
    return _only_sound(places, *_columns(columns, log_ms))


def _are_usual(lines: Any) -> Any:
    parts = ((slice(1), b"["), (START, USUAL_START), (END, USUAL_END))
    are_usual: Any = pc.less_equal(pc.binary_length(lines), pa.scalar(MAX_LINE_BYTES))
    for where, usual in parts:
        found: Any = pc.binary_slice(lines, where.start or 0, where.stop)
        are_usual = pc.and_(are_usual, pc.equal(found, pa.scalar(usual, pa.binary())))
    return are_usual.fill_null(False)


def _log_times_ms(lines: Any, parser: RequestLogParser) -> Numbers:
    """Times in epoch ms; `_NO_TIME` for lines that are left to the parser."""
    second_ms = _looked_up(lines, SECOND, parser.second_ms)
    millisecond = _looked_up(lines, MILLISECOND, MILLISECONDS.get)
    return np.where((second_ms == _NO_TIME) | (millisecond == _NO_TIME), _NO_TIME, second_ms + millisecond)


def _looked_up(lines: Any, where: slice, look_up: Callable[[bytes], int | None]) -> Numbers:
    """The value of a part of each line; each different text is evaluated once."""
    encoded: Any = pc.binary_slice(lines, where.start, where.stop).dictionary_encode("encode")
    known = [look_up(text or b"") for text in encoded.dictionary.to_pylist()]
    values = np.array([_NO_TIME if each is None else each for each in known], np.int64)
    found: Numbers = values[encoded.indices.to_numpy()]
    return found


def _parts(bodies: Sequence[bytes], parser: RequestLogParser) -> tuple[list[Parts], npt.NDArray[np.bool_]]:
    """The parts of the lines that can be read, and which those are."""
    parts, found, odd = parser.parts, list[Parts](), list[int]()
    for place, body in enumerate(bodies):
        try:
            found.append(parts(body))
        except (Unreadable, OverflowError):
            odd.append(place)
    are_read = np.ones(len(bodies), bool)
    are_read[odd] = False
    return found, are_read


def _columns(parts: Mapping[str, Sequence[Any]], log_ms: Numbers) -> tuple[dict[str, Any], Any]:
    """The columns of `Request`, and which rows are sound; the arithmetic is that of `JsonForm.read`."""
    columns: dict[str, Any] = {name: pa.array(parts[name], _SCHEMA.field(name).type) for name in _AS_THEY_ARE}
    principals: Any = pa.array(parts["principal"], pa.string()).dictionary_encode()
    names = [principal.partition(":") for principal in principals.dictionary.to_pylist()]
    for name, place in (("principal_type", 0), ("user", 2)):
        columns[name] = pa.array([each[place] for each in names], pa.string()).take(principals.indices)
    are_named = np.array([colon == ":" for _, colon, _ in names])[principals.indices.to_numpy()]
    local_ms, remote_ms, queue_ms, send_ms, waits_from_ms = (
        pa.array(parts[name], pa.float64()).to_numpy() for name in _FLOAT_PARTS
    )
    throttle_ms, in_response_ms = (pa.array(parts[name], pa.int64()).to_numpy() for name in _INT_PARTS)
    with np.errstate(over="ignore"):  # nothing bounds the log's numbers; rows beyond all times are not sound
        before_ms = log_ms - send_ms - queue_ms - np.where(remote_ms >= waits_from_ms, 0.0, remote_ms)
        are_sound = (log_ms != _NO_TIME) & are_named & (before_ms >= EARLIEST_MS) & (before_ms <= LATEST_MS)
        rounded = np.where(are_sound, (before_ms + 0.5, send_ms * 1_000 + 0.5), 0.0)
    record_ms, network_us = rounded.astype(np.int64)
    is_timed = np.array(parts["is_timed"])
    columns |= {
        "log_time_ms": pa.array(log_ms),
        "record_time_ms": pa.array(record_ms),
        "request_time_percent": pa.array(local_ms / 10.0),
        "observed_throttle_ms": pa.array(np.maximum(throttle_ms, in_response_ms)),
        "network_time_us": pa.array(network_us, mask=~is_timed),
    }
    return columns, are_sound


def _only_sound(places: Numbers, columns: dict[str, Any], are_sound: Any) -> LineColumns:
    if are_sound.all():
        return LineColumns(places, columns)
    mask = pa.array(are_sound)
    return LineColumns(places[are_sound], {name: column.filter(mask) for name, column in columns.items()})
