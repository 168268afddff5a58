"""Whether the report can be trusted: a grade, and one sentence with numbers for each reason for doubt.

NO: numbers are wrong or missing. Nothing was judged, verdicts disagree with the brokers', an unknown quota callback
decides, or many lines could not be read. WITH_CARE: the numbers are right as far as they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.formats.text.person_units import counted, iso_time, person_ms
from kquota_spark.reports.agreement.agreement import LEAST_PERCENT
from kquota_spark.reports.scope.cluster_command import on_cluster
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import Agreement, Confidence, Trust
from kquota_spark.schema.gap_tables import BROKER_START
from kquota_spark.store.reading import utc_text

LEAST_TRUSTED_PERCENT = 95.0
"""Percent of agreement below which the grade is NO.

From here to 99 % it is WITH_CARE. Below 99 %, `kquota agreement` searches for a cause.
"""
LEAST_CERTAIN_PERCENT = 50.0
"""Percent of certain seconds below which the grade is WITH_CARE.

In most seconds of a bucket that is at its limit, 2 ms could flip a verdict. Not all buckets are at their limit.
"""
LEAST_COVERED_PERCENT = 50.0
MOST_UNREADABLE_PERCENT, UNREADABLE_TOO_MANY_PERCENT = 0.1, 5.0
MOST_LATE_PERCENT = 0.1
MOST_BEHIND_PERCENT = 1.0
MOST_DELAY_APART_PERCENT = 5.0
LEAST_DELAY_APART_MS = 1_000
"""Difference (ms) of the total delays by brokers and by replay up to which there is no doubt, at any percentage."""
MOST_LAG_MS = 300_000

_AGREEMENT = """
select quota_type, sum(judged)::bigint as judged, sum(agreeing)::bigint as agreeing,
       sum(uncertain)::bigint as uncertain
from places where is_log group by quota_type having sum(judged) + sum(uncertain) > 0 order by quota_type
"""
_SECONDS = """
select coalesce(sum(seconds) filter (is_log), 0)::bigint as of_log, count(*) as decisions,
       greatest(0, coalesce(sum(certain_seconds - late_rows) filter (is_log), 0))::bigint as certain,
       coalesce(sum(behind_seconds), 0)::bigint as behind, coalesce(sum(seconds), 0)::bigint as seconds,
       coalesce(sum(late), 0)::bigint as late, coalesce(sum(judged + uncertain), 0)::bigint as verdicts,
       max(last_ms) as last_ms, sum(certain_replay_ms)::bigint as replay_ms,
       sum(certain_broker_ms)::bigint as broker_ms, coalesce(sum(unsized), 0)::bigint as unsized,
       list_sort(list_distinct(list(if(is_log, 'log', 'jmx')))) as sources
from places
"""
_EXTENT = "select min(second_ms) as from_ms, max(second_ms) + 1000 as to_ms from judged where {which}"
_LINES = """
select coalesce(sum(coalesce(lines, 1)) filter (kind in ('request', 'left_out', 'unreadable')), 0)::bigint as lines,
       count(*) filter (kind = 'unreadable') as unreadable
from requests where cluster_id = ? and coalesce(record_time_ms, kafka_timestamp_ms) >= ?
  and coalesce(record_time_ms, kafka_timestamp_ms) < ?
"""
_OWN_LINES = "select coalesce(sum(requests), 0)::bigint from used"
_GAPS = """
select count(*), count(distinct broker_id) from log_gaps
where cluster_id = ? and reason <> ? and to_time > make_timestamptz(?) and from_time < make_timestamptz(?)
"""
_CALLBACK = """
select quota_callback_class from broker_configs
where cluster_id = ? and coalesce(quota_callback_class, '') <> '' and coalesce(valid_to > make_timestamptz(?), true)
order by 1 limit 1
"""


_WORST_FIRST = (Trust.NO, Trust.WITH_CARE)


class _Doubt(NamedTuple):
    reason: str
    trust: Trust = Trust.WITH_CARE


def confidence(scope: Scope, settings: Settings, made_at_ms: int) -> Confidence:
    """The grade of the report, with its reasons and figures. A tenant's page uses the tenant's own verdicts."""
    agreement = tuple(Agreement(**row) for row in scope.rows(_AGREEMENT))
    (seconds,) = scope.rows(_SECONDS)
    lines, unreadable = scope.tables.query(_LINES, [scope.cluster_id, *scope.asked]).rows[0]
    gaps, of_brokers = scope.tables.query(
        _GAPS, [scope.cluster_id, BROKER_START, scope.asked.from_ms * 1_000, scope.asked.to_ms * 1_000]
    ).rows[0]
    lag_ms = None
    if seconds["last_ms"] is not None:
        end_ms = min(scope.asked.to_ms, made_at_ms)
        lag_ms = (
            0 if scope.covered.to_ms == scope.asked.to_ms else max(0, end_ms - seconds["last_ms"] - 1_000)
        )
    # A tenant does not have the settings, and learns nothing of the operator's folders.
    file = settings.file if scope.tenant is None else ""
    doubts = [
        *_of_coverage(scope, made_at_ms),
        *_of_verdicts(agreement, file),
        *_of_seconds(scope, seconds, file),
        *_of_delay(seconds["replay_ms"], seconds["broker_ms"]),
        *_of_log(lines, unreadable, gaps, of_brokers),
        *_of_time(lag_ms),
        *_of_callback(scope, settings),
    ]
    if scope.tenant is not None:
        lines, unreadable = scope.tables.query(_OWN_LINES).rows[0][0], 0
    return Confidence(
        trust=min((doubt.trust for doubt in doubts), key=_WORST_FIRST.index, default=Trust.YES),
        reasons=tuple(doubt.reason for doubt in doubts),
        agreement=agreement,
        certain_percent=_percent(seconds["certain"], seconds["of_log"]),
        lag_ms=lag_ms,
        lines=lines,
        unreadable_lines=unreadable,
        late_requests=seconds["late"],
        gaps=gaps,
        sources=tuple(reversed(seconds["sources"] or ())),
        certain_delay_by_replay_ms=seconds["replay_ms"],
        certain_delay_ms=seconds["broker_ms"],
    )


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def covered_note(scope: Scope) -> str:
    """A sentence on the part of the period that the tables cover; empty if they cover all of it."""
    asked, covered = scope.asked, scope.covered
    if covered == asked:
        return ""
    known = f"{utc_text(covered.from_ms)} to {utc_text(covered.to_ms)}"
    return (
        f"the tables cover {known} only, {scope.covered_percent:.1f} % of the period asked for: shares of time are of "
        "what is covered"
    )


def is_little_covered(scope: Scope, made_at_ms: int) -> bool:
    """Whether the tables cover less than half of the part of the period that is over."""
    past_ms = min(scope.asked.to_ms, max(made_at_ms, scope.covered.to_ms)) - scope.asked.from_ms
    return 100.0 * (scope.covered.to_ms - scope.covered.from_ms) < LEAST_COVERED_PERCENT * past_ms


def _of_coverage(scope: Scope, made_at_ms: int) -> Iterator[_Doubt]:
    if is_little_covered(scope, made_at_ms):
        yield _Doubt(f"{covered_note(scope)} (trusted from {LEAST_COVERED_PERCENT:.0f} % on)")


def _of_verdicts(agreement: tuple[Agreement, ...], file: str) -> Iterator[_Doubt]:
    for one in agreement:
        share = _percent(one.agreeing, one.judged)
        if share is not None and share < LEAST_PERCENT:
            yield _Doubt(
                f"{one.quota_type}: {one.judged - one.agreeing:,} of {one.judged:,} certain verdicts differ from "
                f"the brokers', agreement {share:.2f} % (trusted from {LEAST_PERCENT:.0f} % on): "
                f"{on_cluster('kquota agreement', file)} searches the cause",
                Trust.NO if share < LEAST_TRUSTED_PERCENT else Trust.WITH_CARE,
            )


def _of_seconds(scope: Scope, seconds: dict[str, int], file: str) -> Iterator[_Doubt]:
    if not seconds["decisions"]:
        yield _Doubt("nothing of this period was judged: there is usage, and no decision", Trust.NO)
        return
    if not seconds["of_log"]:
        yield _Doubt(
            f"all {seconds['seconds']:,} decisions are samples of JMX: what was between two samples is not known"
        )
        return
    if seconds["unsized"]:
        yield _Doubt(
            f"{seconds['unsized']:,} requests have no size in the log: amounts and rates "
            "of their buckets are without them"
        )
    certain = _percent(seconds["certain"], seconds["of_log"]) or 0.0
    if certain < LEAST_CERTAIN_PERCENT:
        yield _Doubt(
            f"{certain:.1f} % of {seconds['of_log']:,} judged seconds are certain (trusted from "
            f"{LEAST_CERTAIN_PERCENT:.0f} % on)"
        )
    behind = _percent(seconds["behind"], seconds["seconds"]) or 0.0
    if behind > MOST_BEHIND_PERCENT:
        yield _Doubt(
            f"{behind:.1f} % of the seconds were judged before the quotas of their time were known: "
            f"{_restate(scope, 'is_rules_behind', file)} judges them again"
        )
    late = _percent(seconds["late"], seconds["late"] + seconds["verdicts"]) or 0.0
    if late > MOST_LATE_PERCENT:
        yield _Doubt(
            f"{late:.2f} % of the requests came after their second had been judged: "
            f"{_restate(scope, 'late > 0', file)} counts them"
        )


def _restate(scope: Scope, which: str, file: str) -> str:
    """The command that restates the seconds from the first to the last of some decisions.

    Args:
        scope: the period.
        which: SQL condition of the decisions; some must match.
        file: path of the settings; empty for none.
    """
    (row,) = scope.rows(_EXTENT.format(which=which))
    return on_cluster(f"kquota restate --from {iso_time(row['from_ms'])} --to {iso_time(row['to_ms'])}", file)


def _of_delay(replay_ms: int | None, broker_ms: int | None) -> Iterator[_Doubt]:
    if replay_ms is None or broker_ms is None:
        return
    apart_ms = abs(replay_ms - broker_ms)
    if apart_ms > LEAST_DELAY_APART_MS and 100.0 * apart_ms > MOST_DELAY_APART_PERCENT * broker_ms:
        yield _Doubt(
            f"in certain seconds the total delay is {person_ms(broker_ms)} by brokers and {person_ms(replay_ms)} by "
            f"replay (trusted up to {MOST_DELAY_APART_PERCENT:.0f} % apart)"
        )


def _of_log(lines: int, unreadable: int, gaps: int, of_brokers: int) -> Iterator[_Doubt]:
    share = _percent(unreadable, lines) or 0.0
    if share > MOST_UNREADABLE_PERCENT:
        trust = Trust.NO if share > UNREADABLE_TOO_MANY_PERCENT else Trust.WITH_CARE
        yield _Doubt(f"{share:.2f} % of the lines of the request log could not be read", trust)
    if gaps:
        yield _Doubt(
            f"{counted(gaps, 'period')} of the log of {counted(of_brokers, 'broker')} "
            f"{'is' if gaps == 1 else 'are'} missing: what was used then is not counted"
        )


def _of_time(lag_ms: int | None) -> Iterator[_Doubt]:
    if lag_ms is not None and lag_ms > MOST_LAG_MS:
        yield _Doubt(
            f"the last {lag_ms / 60_000:,.0f} minutes have no decision: nobody sent anything, or the audit is behind "
            f"(more than {MOST_LAG_MS // 60_000} minutes)"
        )


def _of_callback(scope: Scope, settings: Settings) -> Iterator[_Doubt]:
    found = scope.tables.query(_CALLBACK, [scope.cluster_id, scope.asked.from_ms * 1_000]).rows
    if found and not settings.quotas.callback:
        yield _Doubt(
            f"the brokers let {found[0][0]} decide on quotas, and quotas.callback names nothing like it",
            Trust.NO,
        )
