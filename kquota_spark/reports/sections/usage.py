"""How much each client used, how it is spread over brokers, and what a broker's limits mean for the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import amount_text, broker_text, person_ms, rate_text
from kquota_spark.reports.gathered.usage import skews, top_talkers
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import (
    BUCKET_COLUMNS,
    CsvFile,
    ReportSection,
    file_of,
    names_of,
    values_of,
)
from kquota_spark.reports.scope.audit_report import Skew, Talkers
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.sections.limits import band

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_MOST_BARS, _MOST_SPREADS, _MOST_BROKERS = 20, 20, 12
_TALKER = (
    "user", "client_id", "quota_type", "amount", "share_percent", "requests", "mean_per_s", "peak_per_s",
    "observed_throttle_ms",
)  # fmt: skip
_SKEW = ("limit_per_s", "max_to_mean", "cluster_limit_per_s", "with_one_more_broker_per_s")


def gather(scope: Scope) -> dict[str, Any]:
    """The largest clients of each quota type, and the spread of buckets over brokers."""
    return {"talkers": top_talkers(scope), "skew": skews(scope)}


def usage_section(report: AuditReport) -> Section:
    """The top talkers of each quota type, the spread over brokers, and the limits of the whole cluster."""
    is_own = report.head.tenant is not None
    blocks = [_talkers(report, of_type) for of_type in _with_traffic(report)]
    spread = sorted(report.skew, key=lambda one: -one.max_to_mean)
    brokers = {broker for one in spread for broker in one.used_per_s}
    brokers |= {broker for one in report.buckets for broker in one.brokers}
    if len(brokers) == 1:
        one_broker = (
            f"All of it was on broker {broker_text(brokers.pop())}: its limits are those of the cluster."
        )
        blocks.append(Block("Spread over brokers", one_broker))
    elif spread:
        blocks += [_spread(report, spread), *_by_broker(report), _cluster_limits(report, spread)]
    return Section(
        anchor="usage",
        short="Usage",
        title="How much did you use?" if is_own else "Who used how much?",
        lead=_lead(report),
        blocks=tuple(blocks),
    )


def _with_traffic(report: AuditReport) -> list[Talkers]:
    found = [of_type for of_type in report.talkers if of_type.talkers]
    return sorted(found, key=lambda of_type: words.in_order(of_type.quota_type))


def _lead(report: AuditReport) -> str:
    with_traffic = _with_traffic(report)
    if not with_traffic:
        who = "You sent" if report.head.tenant is not None else "Clients sent"
        return f"{who} nothing in this period that counts towards a quota."
    parts = []
    for of_type in with_traffic:
        first = max(of_type.talkers, key=lambda one: one.amount)
        total = amount_text(of_type.quota_type, of_type.total)
        name = words.client_of(first.user, first.client_id, report.head)
        parts.append(
            f"{total} {words.done_word(of_type.quota_type)}, most by {name} ({words.share_text(first.share_percent)})"
        )
    return f"{'; '.join(parts)}."


def _talkers(report: AuditReport, of_type: Talkers) -> Block:
    kind, word = of_type.quota_type, words.type_word(of_type.quota_type)
    ordered = sorted(of_type.talkers, key=lambda one: -one.amount)
    running = list(accumulate(one.share_percent for one in ordered))
    shown = ordered[:_MOST_BARS]
    data = {
        "labels": [words.client_of(one.user, one.client_id, report.head) for one in shown],
        "percent": [round(one.share_percent, 4) for one in shown],
        "running": [round(min(percent, 100.0), 4) for percent in running[:_MOST_BARS]],
        "texts": [
            f"{words.share_text(one.share_percent)} · {amount_text(kind, one.amount)}" for one in shown
        ],
    }
    columns = (
        Column("client"),
        *Column.numbers("amount", "share", "running share", "requests", "mean", "peak"),
        Column("total delay by brokers", is_number=True),
    )
    rows = (
        (
            Cell(words.client_of(one.user, one.client_id, report.head)),
            words.amount_cell(kind, one.amount),
            words.share_cell(one.share_percent),
            Cell(words.share_text(min(so_far, 100.0))),
            Cell("-") if one.requests is None else words.count_cell(one.requests),
            words.rate_cell(kind, one.mean_per_s),
            words.rate_cell(kind, one.peak_per_s),
            words.throttles_cell(one.observed_throttle_ms),
        )
        for one, so_far in zip(ordered, running, strict=True)
    )
    rest = f"clients, together {amount_text(kind, of_type.others_amount)}"
    table = table_of(f"Clients by {word}", columns, rows, len(ordered) + of_type.others, rest)
    bars = "; bars are shares, the line adds them up" if len(ordered) > 1 else ""
    label = f"Share of all {word} by client, largest first, with the running share"
    return Block(
        f"{'Top talkers' if report.head.tenant is None else 'Your clients'}: {word}",
        f"{amount_text(kind, of_type.total)} in all{bars}.",
        Chart(f"chart-talkers-{kind}", "pareto", label, data) if len(ordered) > 1 else None,
        table,
        is_table_open=len(ordered) == 1,
    )


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
            [person_ms(delay_ms) if (delay_ms := one.throttled_ms.get(broker)) else "" for broker in brokers]
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


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each client and quota type, and one for each bucket and broker."""
    return {
        "usage.csv": file_of(_TALKER, [one for of_type in report.talkers for one in of_type.talkers]),
        "brokers.csv": CsvFile(
            (*BUCKET_COLUMNS, *_SKEW, "broker_id", "used_per_s", "throttled_ms"), _broker_rows(report.skew)
        ),
    }


def _broker_rows(skew: Iterable[Skew]) -> Iterator[tuple[Any, ...]]:
    for one in skew:
        for broker_id, rate in sorted(one.used_per_s.items()):
            of_broker = broker_id, rate, one.throttled_ms.get(broker_id)
            yield (*names_of(one.bucket), *values_of(one, _SKEW), *of_broker)


SECTION = ReportSection(gather, usage_section, files)
