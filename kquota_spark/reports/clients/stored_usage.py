"""Reads `usage` with its points, which DuckDB's views leave out, without Spark or a JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.traffic import Gaps, Traffic
from kquota_spark.model.measure.points import CONTROLLER_ID, Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.schema.gap_tables import BROKER_START
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_COLUMNS = ("broker_id", "quota_type", "principal_type", "user", "client_id", "second", "points")
_GAPS = "select broker_id, epoch_ms(from_time), epoch_ms(to_time) from log_gaps where cluster_id = ? and reason <> ?"
_RINGS = f"""
select broker_id, arg_max(model_variant, decisions.second) from decisions
where cluster_id = ? and {FROM_LOG} and quota_type in ('produce', 'fetch') and model_variant is not null
group by broker_id
"""  # noqa: S608 - a condition of ours


class UsagePart(NamedTuple):
    """A part of usage: one type, in a period, of one user, one client id, or both; an empty name is any."""

    quota_type: str
    user: str
    client_id: str
    from_ms: int
    to_ms: int | None = None
    """End, epoch ms, exclusive; None for no end."""


def stored_usage(
    settings: Settings,
    from_ms: int,
    to_ms: int,
    quota_types: Iterable[QuotaType] = BANDWIDTH,
    *,
    broker_id: int | None = None,
    parts: Sequence[UsagePart] = (),
) -> Iterator[Traffic]:
    """Usage of this cluster from the request log in a period; in no order.

    Args:
        settings: where the tables are, and the cluster.
        from_ms: first second, epoch ms.
        to_ms: end, epoch ms, exclusive.
        quota_types: the requested types.
        broker_id: None for all brokers.
        parts: only rows of at least one of these; empty for all.

    Raises:
        UserError: the table is missing or cannot be read.
    """
    import pyarrow.dataset as ds

    start, end = (datetime.fromtimestamp(time_ms / 1_000, UTC) for time_ms in (from_ms, to_ms))
    second = ds.field("second")
    chosen = (
        (ds.field("cluster_id") == settings.cluster_id)
        & (ds.field("event_date") >= start.date())
        & (second >= start)
        & (second < end)
        & ds.field("quota_type").isin([each.value for each in quota_types])
    )
    if broker_id is not None:
        chosen &= ds.field("broker_id") == broker_id
    if parts:
        chosen &= _of_names(parts)
    is_asked = reduce(or_, map(_of_part, parts)) if parts else None
    with delta_errors(f"table usage under {settings.tables} cannot be read"):
        delta = delta_table(settings, "usage")
        batches = delta.dataset().to_batches(columns=list(_COLUMNS), filter=chosen)
        for batch in batches:
            yield from _traffic(batch if is_asked is None else _filtered(batch, is_asked))


class Group(NamedTuple):
    """Clients of one broker, by user and client id, and the periods of their usage to read (epoch ms)."""

    broker_id: int
    clients: Collection[tuple[str, str]]
    spans: Sequence[tuple[int, int]]


def usage_of_groups(
    settings: Settings, groups: Sequence[Group], most_requests: int | None = None
) -> Iterator[tuple[int, list[Traffic] | None]]:
    """Usage of this cluster from the request log, of all types, the smallest groups first.

    The table is read once, as columns. Only the usage of one group at a time is in objects.

    Args:
        settings: where the tables are, and the cluster.
        groups: no client of a broker is in two of them.
        most_requests: maximum number of requests of all groups; None for no limit.

    Yields:
        The place of a group, and its usage in no order, None beyond the maximum; groups without usage are left out.

    Raises:
        UserError: the table is missing or cannot be read.
    """
    import numpy as np

    rows, places = _rows_of_groups(settings, groups)
    order = np.argsort(places, kind="stable")
    counts = np.bincount(
        places, weights=rows.column("points").value_lengths().fill_null(0), minlength=len(groups)
    )
    starts = np.searchsorted(places[order], np.arange(len(groups) + 1))
    left = float("inf") if most_requests is None else most_requests
    for place in np.argsort(counts, kind="stable"):
        left -= counts[place]
        if not counts[place]:
            continue
        of_group = order[starts[place] : starts[place + 1]]
        yield int(place), None if left < 0 else list(_traffic(rows.take(of_group)))


def _rows_of_groups(settings: Settings, groups: Sequence[Group]) -> tuple[Any, npt.NDArray[np.int64]]:
    """The rows of all groups as one batch, and the place of the group of each row."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.dataset as ds

    first_ms = min(span[0] for group in groups for span in group.spans)
    end_ms = max(span[1] for group in groups for span in group.spans)
    start, end = (datetime.fromtimestamp(time_ms / 1_000, UTC) for time_ms in (first_ms, end_ms))
    chosen = (
        (ds.field("cluster_id") == settings.cluster_id)
        & (ds.field("source") == "log")
        & (ds.field("event_date") >= start.date())
        & (ds.field("second") >= start)
        & (ds.field("second") < end)
        & ds.field("broker_id").isin(sorted({group.broker_id for group in groups}))
        & ds.field("user").isin(sorted({user for group in groups for user, _ in group.clients}))
    )
    place_of = {
        (group.broker_id, *client): place for place, group in enumerate(groups) for client in group.clients
    }
    batches, places = [], [np.empty(0, np.int64)]
    with delta_errors(f"table usage under {settings.tables} cannot be read"):
        delta = delta_table(settings, "usage")
        dataset = delta.dataset()
        for batch in dataset.to_batches(columns=list(_COLUMNS), filter=chosen):
            found = _places(batch, place_of, groups)
            is_asked = found >= 0
            batches.append(batch.filter(pa.array(is_asked)))
            places.append(found[is_asked])
        schema = dataset.schema
    columns = pa.schema([schema.field(name) for name in _COLUMNS])
    table = pa.Table.from_batches(batches, columns).combine_chunks()
    rows = table.to_batches() or [pa.RecordBatch.from_pylist([], columns)]
    return rows[0], np.concatenate(places)


def _places(
    batch: Any, place_of: Mapping[tuple[int, str, str], int], groups: Sequence[Group]
) -> npt.NDArray[np.int64]:
    """The place of the group of each row; -1 for rows of no group, or out of its periods."""
    import numpy as np

    names = (batch.column(name).to_pylist() for name in ("broker_id", "user", "client_id"))
    found = [place_of.get(name, -1) for name in zip(*names, strict=True)]
    for row, second_ms in enumerate(_seconds_ms(batch)):
        place = found[row]
        if place >= 0 and not any(from_ms <= second_ms < to_ms for from_ms, to_ms in groups[place].spans):
            found[row] = -1
    return np.array(found, np.int64)


def _seconds_ms(batch: Any) -> list[int]:
    import pyarrow as pa

    found: list[int] = batch.column("second").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    return found


def _of_names(parts: Sequence[UsagePart]) -> Any:
    """Rows with a name of some part: for twenty parts a tenth of the cost of the exact condition."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    users = pa.array(sorted({part.user for part in parts if part.user}), pa.string())
    of_clients = {part.client_id for part in parts if part.client_id and not part.user}
    client_ids = pa.array(sorted(of_clients), pa.string())
    if any(not part.user and not part.client_id for part in parts):
        return ds.scalar(True)
    return ds.field("user").isin(users) | ds.field("client_id").isin(client_ids)


def _filtered(batch: Any, is_asked: Any) -> Any:
    import pyarrow as pa

    rows = pa.Table.from_batches([batch]).filter(is_asked).combine_chunks().to_batches()
    return rows[0] if rows else batch.slice(0, 0)


def _of_part(part: UsagePart) -> Any:
    import pyarrow.dataset as ds

    chosen = (ds.field("quota_type") == part.quota_type) & (
        ds.field("second") >= datetime.fromtimestamp(part.from_ms / 1_000, UTC)
    )
    for name, value in (("user", part.user), ("client_id", part.client_id)):
        if value:
            chosen &= ds.field(name) == value
    if part.to_ms is not None:
        chosen &= ds.field("second") < datetime.fromtimestamp(part.to_ms / 1_000, UTC)
    return chosen


def _traffic(batch: Any) -> Iterator[Traffic]:
    """The traffic of a batch. Points are read as columns: one dictionary per point would take ten times the memory."""
    lists = batch.column("points")
    flat = lists.flatten()
    columns = [flat.field(name).to_pylist() for name in Point._fields]
    points = list(map(Point._make, zip(*columns, strict=True)))
    lengths = [length or 0 for length in lists.value_lengths().to_pylist()]
    seconds = _seconds_ms(batch)
    names = [batch.column(name).to_pylist() for name in _COLUMNS[:5]]
    start = 0
    for row, (length, second_ms) in enumerate(zip(lengths, seconds, strict=True)):
        end = start + length
        if length:  # rows from JMX have no points
            broker_id, quota_type, principal_type, user, client_id = (column[row] for column in names)
            yield Traffic(
                broker_id,
                QuotaType(quota_type),
                Principal(principal_type or "User", user),
                client_id,
                second_ms,
                points[start:end],
            )
        start = end


def stored_gaps(settings: Settings, rings: dict[int, RateConfig], default: RateConfig) -> dict[int, Gaps]:
    """The gaps of `log_gaps` by broker, each extended by the broker's ring; mutations have the gaps of all brokers."""
    gaps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    with Tables(settings) as tables:
        if tables.open_if_there("log_gaps"):
            for broker_id, from_ms, to_ms in tables.query(_GAPS, [settings.cluster_id, BROKER_START]).rows:
                gap = (from_ms, to_ms + rings.get(broker_id, default).horizon_ms)
                gaps[broker_id].append(gap)
                gaps[CONTROLLER_ID].append(gap)
    return {broker_id: tuple(of_broker) for broker_id, of_broker in gaps.items()}


def stored_rings(settings: Settings) -> dict[int, RateConfig]:
    """The sample ring that each broker was last judged with, by broker id."""
    with Tables(settings) as tables:
        tables.open("decisions")
        found = tables.query(_RINGS, [settings.cluster_id]).rows
    return {broker_id: RateConfig.parse(name) for broker_id, name in found}
