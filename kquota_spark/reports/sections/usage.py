"""How much each client used: the largest clients of each quota type, and the spread of buckets over brokers.

Only clients under a request_percentage are charged for request time, so its use is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import amount_text, broker_text
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.broker_buckets import amount_per_rate, rate_of
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.sections.spread import skews, spread_blocks, spread_file

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_RATE_UNIT = amount_per_rate()
_TOTALS = f"""
with of_brokers as (
  select quota_type, "user", client_id, broker_id,
         coalesce(sum(amount), (avg(rate_per_s) * (max(second_ms) - min(second_ms)) / 1000 * {_RATE_UNIT})::bigint, 0)
           as amount,
         sum(requests) as requests, sum(observed_throttle_ms) as delay_ms
  from used group by quota_type, "user", client_id, broker_id
), clients as (
  select quota_type, "user", client_id, sum(amount)::bigint as amount, sum(requests)::bigint as requests,
         sum(delay_ms)::bigint as delay_ms
  from of_brokers group by all
)
select *, sum(amount) over (partition by quota_type)::bigint as total, count(*) over (partition by quota_type) as found
from clients
qualify row_number() over (
  partition by quota_type order by amount desc, requests desc nulls last, "user", client_id) <= ?
order by quota_type, amount desc, requests desc nulls last, "user", client_id
"""  # noqa: S608 - names of ours
# With JMX, another broker may have no sample in the same second, so the peaks of brokers are added up.
_PEAKS = f"""
with of_seconds as (
  select quota_type, "user", client_id, is_log, if(is_log, null, broker_id) as of_broker, second_ms,
         coalesce(sum(amount) / {_RATE_UNIT}, max(rate_per_s)) as rate_per_s
  from used where (quota_type, "user", client_id) in (
    select (quota_type, "user", client_id) from (select unnest(?, recursive := true))
  ) group by quota_type, "user", client_id, is_log, of_broker, second_ms
)
select quota_type, "user", client_id, sum(peak)::double as peak_per_s from (
  select quota_type, "user", client_id, of_broker, max(rate_per_s) as peak from of_seconds group by all
) group by all
"""  # noqa: S608 - names of ours
_MOST_BARS = 20
_TALKER = (
    "user", "client_id", "quota_type", "amount", "share_percent", "requests", "mean_per_s", "peak_per_s",
    "delay_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Talker:
    """What one client used over all brokers."""

    user: str
    client_id: str
    quota_type: str
    amount: int
    share_percent: float
    """Percent of the cluster's amount of this type."""
    requests: int | None
    """None if JMX is the only source, as for the sum of throttles."""
    mean_per_s: float
    peak_per_s: float
    delay_ms: int | None


@dataclass(frozen=True, slots=True)
class Talkers:
    """Top talkers of one quota type, largest first, and what all the others used together."""

    quota_type: str
    total: int
    talkers: tuple[Talker, ...]
    others: int
    others_amount: int


def gather(scope: Scope) -> dict[str, Any]:
    """The largest clients of each quota type, and the spread of buckets over brokers."""
    return {"talkers": _top_talkers(scope), "skew": skews(scope)}


def _top_talkers(scope: Scope) -> tuple[Talkers, ...]:
    """On a tenant's page, shares are of the tenant's own amount."""
    rows = scope.rows(_TOTALS, scope.top)
    wanted = [{name: row[name] for name in ("quota_type", "user", "client_id")} for row in rows]
    peaks = {_key(row): row["peak_per_s"] for row in scope.rows(_PEAKS, wanted)} if wanted else {}
    found: dict[str, list[Talker]] = {}
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["quota_type"], row)
        found.setdefault(row["quota_type"], []).append(_talker(scope, row, peaks.get(_key(row), 0.0)))
    return tuple(
        Talkers(
            quota_type=quota_type,
            total=first[quota_type]["total"],
            talkers=tuple(talkers),
            others=first[quota_type]["found"] - len(talkers),
            others_amount=first[quota_type]["total"] - sum(talker.amount for talker in talkers),
        )
        for quota_type, talkers in found.items()
    )


def _talker(scope: Scope, row: dict[str, Any], peak_per_s: float) -> Talker:
    return Talker(
        user=row["user"],
        client_id=row["client_id"],
        quota_type=row["quota_type"],
        amount=row["amount"],
        share_percent=100.0 * row["amount"] / row["total"] if row["total"] else 0.0,
        requests=row["requests"],
        mean_per_s=rate_of(row["quota_type"], row["amount"], scope.covered_seconds),
        peak_per_s=peak_per_s,
        delay_ms=row["delay_ms"],
    )


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["quota_type"], row["user"], row["client_id"]


def usage_section(report: AuditReport) -> Section:
    """The top talkers of each quota type, the spread over brokers, and the limits of the whole cluster."""
    is_own = report.head.tenant is not None
    blocks = [_block(report, of_type) for of_type in _with_traffic(report)]
    spread = sorted(report.skew, key=lambda one: -one.max_to_mean)
    brokers = {broker for one in spread for broker in one.used_per_s}
    brokers |= {broker for one in report.buckets for broker in one.brokers}
    if len(brokers) == 1:
        one_broker = (
            f"All of it was on broker {broker_text(brokers.pop())}: its limits are those of the cluster."
        )
        blocks.append(Block("Spread over brokers", one_broker))
    elif spread:
        blocks += spread_blocks(report, spread)
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


def _block(report: AuditReport, of_type: Talkers) -> Block:
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
            words.throttles_cell(one.delay_ms),
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


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each client and quota type, and one for each bucket and broker."""
    return {
        "usage.csv": file_of(_TALKER, [one for of_type in report.talkers for one in of_type.talkers]),
        "brokers.csv": spread_file(report),
    }


SECTION = ReportSection(gather, usage_section, files)
