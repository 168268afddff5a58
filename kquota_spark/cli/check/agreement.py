"""`kquota agreement`: how well verdicts agree with the brokers, and likely causes where they differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kquota_spark.cli.options import PeriodOptions, bucket_text, counted, percent_text
from kquota_spark.cli.question import Asked, Found, Question, agreement_text
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.findings.agreement_causes import LEAST_AGREEMENT_PERCENT
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import broker_text, person_count, person_ms, type_text
from kquota_spark.reports.agreement.agreement import GROUPS, by
from kquota_spark.reports.agreement.agreement_evidence import Drop, drops

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


def _group(options: argparse.Namespace) -> str:
    group: str = options.by
    return group


def _find(asked: Asked) -> Found:
    """The agreement by group, and the likely causes of low agreement by broker."""
    group, span = asked.own, asked.wanted.span
    found = by(asked.settings, group, span)
    rows, limit = found.dicts(), asked.limit
    rest = "" if limit is None or len(rows) <= limit else "; there are more: --limit 0 shows all"
    dropped = drops(asked.settings, span)
    return Found(
        found.columns,
        rows,
        (*_KEYS[group], *_COUNTS),
        "\n".join([_footer(rows, group) + rest, *_cause_lines(dropped)]),
        head=_head(rows) if rows else "",
        when_empty="no decisions in that time",
        envelope={"causes": [_cause_row(drop, cause) for drop in dropped for cause in drop.causes]},
    )


def _head(rows: Sequence[Row]) -> str:
    """The agreement of all rows together, with what it leaves out."""
    names = ("requests_judged", "requests_agreeing", "uncertain", "excluded", "inferred")
    return agreement_text({name: sum(row[name] for row in rows) for name in names})


def _footer(rows: Sequence[Row], group: str) -> str:
    delay = _delay(
        *(sum(row[name] for row in rows) for name in ("certain_delay_ms", "certain_delay_by_replay_ms"))
    )
    return f"{counted(len(rows), group)}{delay}"


def _delay(brokers_ms: int, replay_ms: int) -> str:
    if not brokers_ms:
        return ""
    by_replay = f"{person_ms(replay_ms)} by replay, {_times(replay_ms, brokers_ms)}"
    return f"\ntotal delay in certain seconds: {person_ms(brokers_ms)} by brokers, {by_replay}"


def _cause_lines(dropped: Sequence[Drop]) -> list[str]:
    return [
        terminal_text(
            f"broker {drop.broker_id} of {drop.cluster_id}, likely cause: {cause.cause.value}: "
            f"{cause.evidence} -> {cause.advice}"
        )
        for drop in dropped
        for cause in drop.causes
    ]


def _cause_row(drop: Drop, cause: Any) -> dict[str, Any]:
    return {
        "cluster_id": drop.cluster_id,
        "broker_id": drop.broker_id,
        "cause": cause.cause.value,
        "evidence": cause.evidence,
        "advice": cause.advice,
    }


def _times(replay_ms: int, brokers_ms: int) -> str:
    return f"{replay_ms / brokers_ms:.3f} x" if brokers_ms else "-"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


_KEYS = {
    "broker": (Shown("broker", lambda row: broker_text(row["broker_id"])),),
    "type": (Shown("type", lambda row: type_text(row["quota_type"]), is_text=True, keep=8),),
    "bucket": (
        Shown("broker", lambda row: broker_text(row["broker_id"])),
        Shown("type", lambda row: type_text(row["quota_type"]), is_text=True, keep=8),
        Shown("bucket", bucket_text, is_text=True, keep=16),
    ),
    "day": (Shown("day", lambda row: row["event_date"], is_text=True, keep=10),),
}
_COUNTS = (
    Shown("agree", lambda row: percent_text(row["agreement_percent"])),
    Shown("judged", lambda row: person_count(row["requests_judged"])),
    Shown("throttled", lambda row: person_count(row["judged_throttled"]), rank=2),
    Shown(
        "false",
        lambda row: f"{row['false_positive']:,}+{row['false_negative']:,}",
        note="false: throttled by replay only + by brokers only",
    ),
    Shown(
        "unsure",
        lambda row: f"{row['uncertain']:,} ({row['uncertain_wrong']:,})",
        rank=2,
        note="unsure: 2 ms could flip them (wrong ones)",
    ),
    Shown(
        "delay",
        lambda row: person_ms(row["certain_delay_ms"]) if row["certain_delay_ms"] else "-",
        rank=1,
        note="delay: total delay by brokers",
    ),
    Shown(
        "by replay",
        lambda row: _times(row["certain_delay_by_replay_ms"], row["certain_delay_ms"]),
        rank=1,
        note="by replay: the same by replay, as multiple of it",
    ),
    Shown(
        "left out",
        lambda row: f"{row['inferred']:,}+{row['excluded']:,}+{row['late']:,}",
        rank=3,
        note="left out: inferred + under a request quota + late",
    ),
    Shown(
        "+-1 ms",
        lambda row: _share(row["throttle_within_1_ms"], row["throttles_compared"]),
        rank=4,
        note="+-1 ms: throttle times",
    ),
    Shown(
        "JMX",
        lambda row: _share(row["jmx_within_1_percent"], row["jmx_compared"]),
        rank=5,
        note="JMX: rates within 1 %",
    ),
)


def _colour(row: Row) -> Colour | None:
    share = row["agreement_percent"]
    return Colour.RED if share is not None and share < LEAST_AGREEMENT_PERCENT else None


QUESTION = Question(
    command="agreement", table=None, find=_find, options=_options, own=_group, colour=_colour,
    has_agreement=False, period=PeriodOptions(older_since=("--from",), older_until=("--to",)),
)  # fmt: skip
add_commands = QUESTION.add_to
