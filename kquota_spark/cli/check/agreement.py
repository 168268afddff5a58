"""`kquota agreement`: how well verdicts agree with the brokers, and likely causes where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kquota_spark.cli.options import PeriodOptions, bucket_columns, lines, more_text, percent_text
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Found, Question, agreement_text, column, own_column
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.findings.agreement_causes import LEAST_AGREEMENT_PERCENT
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import counted, person_count, person_ms
from kquota_spark.reports.agreement.agreement import GROUPS, OF_AGREEMENT, by, sums
from kquota_spark.reports.agreement.agreement_evidence import cause_rows

COMMANDS = {
    "agreement": (
        "answers",
        "how well verdicts agree with the throttle and the JMX of the brokers, and why not",
        "kquota agreement --by bucket --since 1d",
    ),
}


@dataclass(frozen=True, slots=True)
class _Own:
    by: str = option(
        "--by", "a line for each of these (default broker)", default="broker",
        choices=[name for name in GROUPS if name != "cluster"],
    )  # fmt: skip


def _find(asked: Asked) -> Found:
    """The agreement by group, and the likely causes of low agreement by broker."""
    group, span = asked.own.by, asked.wanted.span
    found, causes = by(asked.settings, group, span), cause_rows(asked.settings, span)
    rows = found.dicts()
    footer = f"{counted(len(rows), group)}{_delay(rows)}{more_text(asked.limit and rows[asked.limit :])}"
    return Found(
        found.columns,
        rows,
        (*_KEYS[group], *_COUNTS),
        lines(footer, *(terminal_text(_CAUSE.format_map(cause)) for cause in causes)),
        head=agreement_text(sums(rows, *OF_AGREEMENT)) if rows else "",
        when_empty="no decisions in that time",
        envelope={"causes": causes},
    )


def _delay(rows: Sequence[Row]) -> str:
    brokers_ms, replay_ms = sums(rows, "certain_delay_ms", "certain_delay_by_replay_ms").values()
    if not brokers_ms:
        return ""
    by_replay = f"{person_ms(replay_ms)} by replay, {replay_ms / brokers_ms:.3f} x"
    return f"\ntotal delay in certain seconds: {person_ms(brokers_ms)} by brokers, {by_replay}"


def _ratio(part: str, whole: str, form: str = "{:.1f} %", unit: int = 100) -> Callable[[Row], str]:
    """Prints one column as a part of another, or with another unit as its multiple."""
    return lambda row: form.format(unit * row[part] / row[whole]) if row[whole] else "-"


_CAUSE = "broker {broker_id} of {cluster_id}, likely cause: {cause}: {evidence} -> {advice}"
_KEYS = {
    "broker": (column("broker_id"),),
    "type": (column("quota_type"),),
    "bucket": bucket_columns(keep=16)[:3],
    "day": (Shown("day", lambda row: row["event_date"], is_text=True, keep=10),),
}
_COUNTS = (
    own_column("agree", lambda row: percent_text(row["agreement_percent"])),
    own_column("judged", lambda row: person_count(row["requests_judged"])),
    own_column("throttled", lambda row: person_count(row["judged_throttled"]), rank=2),
    own_column("false", "{false_positive:,}+{false_negative:,}".format_map,
               about="throttled by replay only + by brokers only"),
    own_column("unsure", "{uncertain:,} ({uncertain_wrong:,})".format_map, rank=2,
               about="2 ms could flip them (wrong ones)"),
    column("certain_delay_ms", "delay", rank=1, about="total delay by brokers", hides_zero=True),
    own_column("by replay", _ratio("certain_delay_by_replay_ms", "certain_delay_ms", "{:.3f} x", 1), rank=1,
               about="the same by replay, as multiple of it"),
    own_column("left out", "{inferred:,}+{excluded:,}+{late:,}".format_map, rank=3,
               about="inferred + under a request quota + late"),
    own_column("+-1 ms", _ratio("throttle_within_1_ms", "throttles_compared"), rank=4, about="throttle times"),
    own_column("JMX", _ratio("jmx_within_1_percent", "jmx_compared"), rank=5, about="rates within 1 %"),
)  # fmt: skip


def _colour(row: Row) -> Colour | None:
    share = row["agreement_percent"]
    return Colour.RED if share is not None and share < LEAST_AGREEMENT_PERCENT else None


QUESTION = Question(
    command="agreement", table=None, find=_find, options=None, declared=_Own, colour=_colour,
    has_agreement=False, period=PeriodOptions(older_since=("--from",), older_until=("--to",)),
)  # fmt: skip
add_commands = QUESTION.add_to
