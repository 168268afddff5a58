"""`kquota agreement`: how well verdicts agree with the brokers, and likely causes where they differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kquota_spark.cli.options import PeriodOptions, bucket_text, counted, more_text, percent_text
from kquota_spark.cli.question import Asked, Found, Question, agreement_text, column, own_column
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.findings.agreement_causes import LEAST_AGREEMENT_PERCENT
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import or_dash, person_count, person_ms
from kquota_spark.reports.agreement.agreement import GROUPS, by
from kquota_spark.reports.agreement.agreement_evidence import cause_rows

COMMANDS = {
    "agreement": (
        "answers",
        "how well verdicts agree with the throttle and the JMX of the brokers, and why not",
        "kquota agreement --by bucket --since 1d",
    ),
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=[name for name in GROUPS if name != "cluster"], default="broker",
        help="a line for each of these (default broker)",
    )  # fmt: skip


def _find(asked: Asked) -> Found:
    """The agreement by group, and the likely causes of low agreement by broker."""
    group, span, limit = asked.own, asked.wanted.span, asked.limit
    found = by(asked.settings, group, span)
    rows, causes = found.dicts(), cause_rows(asked.settings, span)
    rest = more_text(limit is not None and len(rows) > limit)
    footer = f"{counted(len(rows), group)}{_delay(rows)}{rest}"
    return Found(
        found.columns,
        rows,
        (*_KEYS[group], *_COUNTS),
        "\n".join([footer, *(terminal_text(_CAUSE.format_map(cause)) for cause in causes)]),
        head=_head(rows) if rows else "",
        when_empty="no decisions in that time",
        envelope={"causes": causes},
    )


def _head(rows: Sequence[Row]) -> str:
    """The agreement of all rows together, with what it leaves out."""
    names = ("requests_judged", "requests_agreeing", "uncertain", "excluded", "inferred")
    return agreement_text({name: sum(row[name] for row in rows) for name in names})


def _delay(rows: Sequence[Row]) -> str:
    names = ("certain_delay_ms", "certain_delay_by_replay_ms")
    brokers_ms, replay_ms = (sum(row[name] for row in rows) for name in names)
    if not brokers_ms:
        return ""
    by_replay = f"{person_ms(replay_ms)} by replay, {_times(replay_ms, brokers_ms)}"
    return f"\ntotal delay in certain seconds: {person_ms(brokers_ms)} by brokers, {by_replay}"


def _times(replay_ms: int, brokers_ms: int) -> str:
    return f"{replay_ms / brokers_ms:.3f} x" if brokers_ms else "-"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


_CAUSE = "broker {broker_id} of {cluster_id}, likely cause: {cause}: {evidence} -> {advice}"
_BROKER, _TYPE = column("broker_id"), column("quota_type")
_KEYS = {
    "broker": (_BROKER,),
    "type": (_TYPE,),
    "bucket": (_BROKER, _TYPE, Shown("bucket", bucket_text, is_text=True, keep=16)),
    "day": (Shown("day", lambda row: row["event_date"], is_text=True, keep=10),),
}
_COUNTS = (
    own_column("agree", lambda row: percent_text(row["agreement_percent"])),
    own_column("judged", lambda row: person_count(row["requests_judged"])),
    own_column("throttled", lambda row: person_count(row["judged_throttled"]), rank=2),
    own_column("false", lambda row: f"{row['false_positive']:,}+{row['false_negative']:,}",
               about="throttled by replay only + by brokers only"),
    own_column("unsure", lambda row: f"{row['uncertain']:,} ({row['uncertain_wrong']:,})", rank=2,
               about="2 ms could flip them (wrong ones)"),
    own_column("delay", lambda row: or_dash(row["certain_delay_ms"] or None, person_ms), rank=1,
               about="total delay by brokers"),
    own_column("by replay", lambda row: _times(row["certain_delay_by_replay_ms"], row["certain_delay_ms"]), rank=1,
               about="the same by replay, as multiple of it"),
    own_column("left out", lambda row: f"{row['inferred']:,}+{row['excluded']:,}+{row['late']:,}", rank=3,
               about="inferred + under a request quota + late"),
    own_column("+-1 ms", lambda row: _share(row["throttle_within_1_ms"], row["throttles_compared"]), rank=4,
               about="throttle times"),
    own_column("JMX", lambda row: _share(row["jmx_within_1_percent"], row["jmx_compared"]), rank=5,
               about="rates within 1 %"),
)  # fmt: skip


def _colour(row: Row) -> Colour | None:
    share = row["agreement_percent"]
    return Colour.RED if share is not None and share < LEAST_AGREEMENT_PERCENT else None


QUESTION = Question(
    command="agreement", table=None, find=_find, options=_options, own=lambda options: options.by, colour=_colour,
    has_agreement=False, period=PeriodOptions(older_since=("--from",), older_until=("--to",)),
)  # fmt: skip
add_commands = QUESTION.add_to
