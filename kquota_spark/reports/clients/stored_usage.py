"""Reads `usage` with its points, which DuckDB's views leave out, without Spark or a JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from math import inf
from operator import or_
from typing import Any, NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.traffic import Gaps, Traffic
from kquota_spark.model.measure.points import CONTROLLER_ID, Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.schema.gap_tables import BROKER_START
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import arrow_files, delta_errors, delta_table

_COLUMNS = ("broker_id", "quota_type", "principal_type", "user", "client_id", "second", "points")
_MOST_CONDITIONS = 32
"""Maximum parts that are conditions of the reading; more are compared with each row by their names."""
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
    are_many = len(parts) > _MOST_CONDITIONS
    if parts:
        chosen &= _of_any(parts) if are_many else reduce(or_, map(_of_part, parts))
    with delta_errors(f"table usage under {settings.tables} cannot be read"):
        delta = delta_table(settings, "usage")
        batches = delta.to_pyarrow_dataset(filesystem=arrow_files(delta)).to_batches(
            columns=list(_COLUMNS), filter=chosen
        )
        for batch in batches:
            yield from _traffic(_with_rows_of(batch, parts) if are_many else batch)


def _of_any(parts: Sequence[UsagePart]) -> Any:
    """A condition that rows of all parts meet, and some others."""
    import pyarrow.dataset as ds

    chosen = ds.field("second") >= datetime.fromtimestamp(min(part.from_ms for part in parts) / 1_000, UTC)
    for name in ("user", "client_id"):
        wanted = {getattr(part, name) for part in parts}
        if "" not in wanted:
            chosen &= ds.field(name).isin(sorted(wanted))
    return chosen


def _with_rows_of(batch: Any, parts: Sequence[UsagePart]) -> Any:
    """The rows of a batch that belong to at least one part."""
    import pyarrow as pa

    periods: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for part in parts:
        end_ms = inf if part.to_ms is None else part.to_ms
        periods[part.quota_type, part.user, part.client_id].append((part.from_ms, end_ms))
    columns = (batch.column(name).to_pylist() for name in ("quota_type", "user", "client_id"))
    mask = [
        any(
            from_ms <= second_ms < to_ms
            for key in ((kind, user, client_id), (kind, user, ""), (kind, "", client_id), (kind, "", ""))
            if key in periods
            for from_ms, to_ms in periods[key]
        )
        for kind, user, client_id, second_ms in zip(*columns, _seconds_ms(batch), strict=True)
    ]
    return batch.filter(pa.array(mask, pa.bool_()))


def _seconds_ms(batch: Any) -> list[int]:
    import pyarrow as pa

    found: list[int] = batch.column("second").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    return found


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
