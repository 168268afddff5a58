"""How use is spread over brokers, and what a broker's limits mean for the cluster: a part of the section on usage.

Each broker enforces a limit by itself. So a bucket may use the limit times the number of brokers that lead its
partitions, and the same rule allows more with one more broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, person_ms, rate_text
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, names_of, values_of
from kquota_spark.reports.scope.report_scope import BUCKET, Scope, bucket_of
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.limits import band

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

# Only the active controller counts mutations.
_SKEW = f"""
select {BUCKET}, arg_max_null(limit_per_s, last_ms) as limit_per_s,
       list({{'broker_id': broker_id, 'rate_per_s': mean_rate_per_s, 'delay_ms': delay_ms}}
            order by broker_id) as brokers
from places where quota_type <> 'controller_mutation' and seconds > 0 group by all having limit_per_s > 0
order by max(mean_rate_per_s) / arg_max_null(limit_per_s, last_ms) desc, {BUCKET} limit ?
"""  # noqa: S608 - names of ours
_MOST_SPREADS, _MOST_BROKERS = 20, 12
_OF_FILE = ("limit_per_s", "max_to_mean", "cluster_limit_per_s", "with_one_more_broker_per_s")


@dataclass(frozen=True, slots=True)
class Skew:
    """How one bucket's use is spread over brokers, and what its limit means for the cluster."""

    bucket: BucketName
    limit_per_s: float | None
    used_per_s: Mapping[int, float]
    """Mean rate of its active seconds, by broker."""
    delay_ms: Mapping[int, int]
    """Total delay by broker; from JMX 0."""
    max_to_mean: float
    cluster_limit_per_s: float | None
    """Limit x brokers that saw the bucket: those that lead the client's partitions."""
    with_one_more_broker_per_s: float | None


def skews(scope: Scope) -> list[Skew]:
    """The limited buckets nearest to their limit on their busiest broker, by the mean rate of active seconds."""
    return [_skew(row) for row in scope.rows(_SKEW, scope.top)]


def _skew(row: dict[str, Any]) -> Skew:
    used = {broker["broker_id"]: broker["rate_per_s"] for broker in row["brokers"]}
    mean, limit = sum(used.values()) / len(used), row["limit_per_s"]
    return Skew(
        bucket=bucket_of(row),
        limit_per_s=limit,
        used_per_s=used,
        delay_ms={broker["broker_id"]: broker["delay_ms"] for broker in row["brokers"]},
        max_to_mean=max(used.values()) / mean if mean else 1.0,
        cluster_limit_per_s=limit * len(used),
        with_one_more_broker_per_s=limit * (len(used) + 1),
    )


def spread_blocks(report: AuditReport, spread: list[Skew]) -> Iterator[Block]:
    """The spread of the buckets, their use by broker, and the limits of the whole cluster.

    Args:
        report: the report of the buckets.
        spread: its buckets, the widest spread first.
    """
    yield _spread(report, spread)
    yield from _by_broker(report)
    yield _cluster_limits(report, spread)


def _spread(report: AuditReport, spread: list[Skew]) -> Block:
    shown = [one for one in spread if len(one.used_per_s) > 1][:_MOST_SPREADS]
    data = {
        "labels": _names(report, shown),
        "points": [
            [
                {"broker": broker, "ratio": round(ratio, 3), "text": rate_text(one.bucket.quota_type, rate)}
                for broker, rate, ratio in _ratios(one)
            ]
            for one in shown
        ],
    }
    columns = (*words.BUCKET_COLUMNS, *Column.numbers("busiest to mean", "brokers"), Column("rate by broker"))
    rows = (
        (
            *words.bucket_cells(one.bucket, report.head),
            Cell(f"{one.max_to_mean:.2f} x"),
            words.count_cell(len(one.used_per_s)),
            Cell(
                ", ".join(
                    f"{broker}: {rate_text(one.bucket.quota_type, rate)}" for broker, rate, _ in _ratios(one)
                )
            ),
        )
        for one in spread
    )
    label = "Rate of each bucket on each broker as multiple of an even split, widest spread first"
    return Block(
        "Spread over brokers",
        "1 is an even split. A quota is enforced by each broker alone: what is uneven meets the limit earlier."
        if shown
        else "Each bucket was on one broker only.",
        Chart("chart-skew", "skew", label, data) if shown else None,
        table_of("Use by broker", columns, rows, len(spread)),
    )


def _names(report: AuditReport, shown: Sequence[Skew]) -> list[str]:
    return [
        f"{words.bucket_of(one.bucket, report.head)} ({words.type_word(one.bucket.quota_type)})"
        for one in shown
    ]


def _by_broker(report: AuditReport) -> Iterator[Block]:
    """Buckets by brokers: where a bucket reaches its limit, and where it has headroom. Nothing with a single broker."""
    brokers = sorted({broker for one in report.skew for broker in one.used_per_s})
    shown = report.skew[:_MOST_SPREADS]
    if len(brokers) < 2:
        return
    percent = [[_of_limit(one, broker) for broker in brokers] for one in shown]
    names = _names(report, shown)
    data = {
        "labels": names,
        "columns": [f"broker {broker_text(broker)}" for broker in brokers],
        "percent": percent,
        "bands": [[None if value is None else band(value) for value in row] for row in percent],
        "throttled": [
            [person_ms(delay_ms) if (delay_ms := one.delay_ms.get(broker)) else "" for broker in brokers]
            for one in shown
        ],
    }
    columns = (
        Column("bucket"),
        *(Column(f"broker {broker_text(broker)}", is_number=True) for broker in brokers[:_MOST_BROKERS]),
    )
    rows = (
        (Cell(name), *(words.used_cell(value) for value in row[:_MOST_BROKERS]))
        for name, row in zip(names, percent, strict=True)
    )
    label = "Heat map: mean rate while active as percent of the limit, by bucket and broker"
    yield Block(
        "Percent of the limit by broker",
        "Mean rate of the seconds with traffic. A bucket that is over on one broker may have room on the others.",
        Chart("chart-brokers", "grid", label, data),
        table_of("Percent of the limit by broker", columns, rows, len(report.skew), "buckets"),
    )


def _of_limit(one: Skew, broker: int) -> float | None:
    rate = one.used_per_s.get(broker)
    return None if rate is None or not one.limit_per_s else round(100 * rate / one.limit_per_s, 2)


def _ratios(one: Skew) -> Iterator[tuple[str, float, float]]:
    mean = sum(one.used_per_s.values()) / len(one.used_per_s) if one.used_per_s else 0.0
    for broker, rate in sorted(one.used_per_s.items()):
        yield broker_text(broker), rate, rate / mean if mean else 0.0


def _cluster_limits(report: AuditReport, spread: list[Skew]) -> Block:
    columns = (
        *words.BUCKET_COLUMNS,
        *Column.numbers("limit on a broker", "brokers in use", "limit on the cluster", "used while active"),
        Column("with one more broker", is_number=True),
    )
    rows = (
        (
            *words.bucket_cells(one.bucket, report.head),
            words.rate_cell(kind, one.limit_per_s),
            words.count_cell(len(one.used_per_s)),
            words.rate_cell(kind, one.cluster_limit_per_s),
            words.rate_cell(kind, sum(one.used_per_s.values())),
            words.rate_cell(kind, one.with_one_more_broker_per_s),
        )
        for one in spread
        for kind in (one.bucket.quota_type,)
    )
    return Block(
        "What the limits are on the whole cluster",
        "Every broker enforces the whole limit alone: the cluster allows the limit times the brokers in use. Used is "
        "the mean of each broker's rate over the seconds with traffic, added up; the limit is the last one in force.",
        table=table_of("Limit on a broker and on the cluster", columns, rows, len(spread)),
        is_table_open=True,
    )


def spread_file(report: AuditReport) -> CsvFile:
    """One row for each bucket and broker."""
    return CsvFile((*BUCKET_COLUMNS, *_OF_FILE, "broker_id", "used_per_s", "delay_ms"), _file_rows(report))


def _file_rows(report: AuditReport) -> Iterator[tuple[Any, ...]]:
    for one in report.skew:
        for broker_id, rate in sorted(one.used_per_s.items()):
            of_broker = broker_id, rate, one.delay_ms.get(broker_id)
            yield (*names_of(one.bucket), *values_of(one, _OF_FILE), *of_broker)
