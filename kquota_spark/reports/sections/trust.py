"""Whether the page can be trusted: agreement with the brokers, lag, unreadable lines, certain seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import counted, person_ms
from kquota_spark.reports.agreement.confidence import MOST_LAG_MS
from kquota_spark.reports.parts.page_parts import (
    Block,
    Cell,
    Chart,
    Column,
    Link,
    Section,
    Tile,
    Tone,
    table_of,
)
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.parts.words import count_cell, in_order, sentence, share_text, type_word
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import Agreement, Confidence, Trust

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_STEPS_PER_OCTAVE = 4
# Four bins per octave: some hundred points, whatever the number of rows.
_BIN = f"if({{name}} < 1, 0, round(power(2, round(log2({{name}}) * {_STEPS_PER_OCTAVE}) / {_STEPS_PER_OCTAVE}), 1))"
# Requests of share consumers have no size, so they have no replay.
_PAIRS = f"""
select {_BIN.format(name="throttle_ms")} as longest_throttle_by_replay_ms,
       {_BIN.format(name="observed_throttle_ms")} as longest_throttle_ms,
       is_certain, count(*) as seconds
from judged
where is_log and observed_total_throttle_ms is not null and greatest(throttle_ms, observed_throttle_ms) > 0
  and coalesce(unsized_requests, 0) = 0
group by all order by all
"""  # noqa: S608 - names and numbers of ours
_ALIKE = 0.2
"""Maximum difference of two alike throttles, as a part of the broker's: one step of the picture is a fifth."""
_LENGTHS = (
    ("none", 0.0, 0.5),
    ("below 10 ms", 0.5, 10.0),
    ("10 to 100 ms", 10.0, 100.0),
    ("100 ms to 1 s", 100.0, 1_000.0),
    ("1 to 10 s", 1_000.0, 10_000.0),
    ("10 s and more", 10_000.0, float("inf")),
)
_AGREEMENT = ("quota_type", "judged", "agreeing", "uncertain")
_PAIR = ("longest_throttle_by_replay_ms", "longest_throttle_ms", "is_certain", "seconds")
_TONES = {Trust.YES: Tone.GOOD, Trust.WITH_CARE: Tone.NEAR, Trust.NO: Tone.OVER}
_LEADS = {Trust.YES: "Yes:", Trust.WITH_CARE: "With care:", Trust.NO: "No:"}


@dataclass(frozen=True, slots=True)
class ThrottlePair:
    """The number of seconds with about these longest throttles by replay and by brokers (ms); 0 is no throttle."""

    longest_throttle_by_replay_ms: float
    longest_throttle_ms: float
    is_certain: bool
    seconds: int


def gather(scope: Scope) -> dict[str, Any]:
    """The longest throttles of each second and bucket, by replay and by brokers; none if JMX is the only source."""
    return {"throttle_pairs": tuple(ThrottlePair(**row) for row in scope.rows(_PAIRS))}


def trust_section(report: AuditReport) -> Section:
    """Tiles, the reasons for doubt, and agreement by quota type."""
    found = report.confidence
    # A tenant's notes are about being throttled, so they are in that section.
    notes = report.notes if report.head.tenant is None or report.head.is_first_look else ()
    covered = f"{share_text(report.head.covered_percent)} of the period is covered."
    return Section(
        anchor="trust",
        short="Trust",
        title="May I trust this page?",
        lead=f"{covered} {_LEADS[found.trust]} {_lead(found)}",
        tone=_TONES[found.trust],
        tiles=(_agreement(found), *_delay(found), _lag(found), _unreadable(found), _certain(found)),
        reasons=tuple(map(sentence, (*found.reasons, *notes))),
        blocks=(
            *([_by_type(found.agreement)] if found.agreement else []),
            *_calibration(report.throttle_pairs),
        ),
    )


def trust_badge(report: AuditReport) -> Link:
    """The grade with the agreement, and the part of the seconds that is not certain: `trust: yes, 99.99 %`."""
    found = report.confidence
    percent = agreement_percent(found.agreement)
    text = f"trust: {found.trust.value}"
    if percent is not None:
        text += f", {_precise(percent)}"
    if found.certain_percent is not None and found.certain_percent < 100:
        text += f" ({share_text(100 - found.certain_percent)} open)"
    return Link(text, "#trust", _TONES[found.trust])


def _lead(found: Confidence) -> str:
    if found.reasons:
        return f"{counted(len(found.reasons), 'thing speaks', 'things speak')} against it."
    if not found.sources:
        return "nothing was read in this period, so there is nothing to doubt."
    sources = {"log": "the request log", "jmx": "JMX"}
    read_from = " and ".join(sources.get(name, name) for name in found.sources)
    return f"it is read from {read_from}, and nothing speaks against it."


def agreement_percent(agreement: tuple[Agreement, ...]) -> float | None:
    """Agreement in percent of all verdicts that could be compared; None without any."""
    judged = sum(one.judged for one in agreement)
    return 100.0 * sum(one.agreeing for one in agreement) / judged if judged else None


def _precise(percent: float) -> str:
    """A percentage with two decimals; less than all is never shown as 100."""
    return "100 %" if percent == 100 else f"{min(percent, 99.99):.2f} %"


def _agreement(found: Confidence) -> Tile:
    percent = agreement_percent(found.agreement)
    if percent is None:
        return Tile("Agreement with brokers", "-", "no verdict could be compared with a broker's")
    judged = sum(one.judged for one in found.agreement)
    differing = judged - sum(one.agreeing for one in found.agreement)
    detail = f"{differing:,} of {judged:,} verdicts differ from the broker's own"
    return Tile("Agreement with brokers", _precise(percent), detail)


def _delay(found: Confidence) -> list[Tile]:
    """A tile with the total delay by brokers and by replay; none if no request was throttled."""
    brokers_ms, replay_ms = found.certain_delay_ms, found.certain_delay_by_replay_ms
    if not brokers_ms or replay_ms is None:
        return []
    ratio = f"{person_ms(replay_ms)} by replay, {replay_ms / brokers_ms:.3f} times as much"
    detail = f"by brokers, in certain seconds; {ratio}"
    return [Tile("Delay checked", person_ms(brokers_ms), detail)]


def _lag(found: Confidence) -> Tile:
    if found.lag_ms is None:
        return Tile("Lag", "-", "nothing was judged in this period", Tone.NEAR)
    tone = Tone.NEAR if found.lag_ms > MOST_LAG_MS else Tone.PLAIN
    text = f"{found.lag_ms / 1_000:.1f} s" if found.lag_ms < 10_000 else person_ms(found.lag_ms)
    return Tile("Lag", text, "from the newest verdict to the end of the period, or to now", tone)


def _unreadable(found: Confidence) -> Tile:
    detail = f"of {counted(found.lines, 'line')}"
    if found.late_requests:
        detail += f", {counted(found.late_requests, 'late request')}"
    if found.gaps:
        detail += f", {counted(found.gaps, 'gap in a log', 'gaps in logs')}"
    tone = Tone.NEAR if found.unreadable_lines or found.gaps else Tone.PLAIN
    return Tile("Unreadable lines", f"{found.unreadable_lines:,}", detail, tone)


def _certain(found: Confidence) -> Tile:
    if found.certain_percent is None:
        return Tile("Certain", "-", "JMX gives rates, not single verdicts")
    detail = "of seconds: nothing missing could change the verdict"
    return Tile("Certain", share_text(found.certain_percent), detail)


def _by_type(agreement: tuple[Agreement, ...]) -> Block:
    columns = (Column("quota type"), *Column.numbers("agreement", "verdicts", "differing", "uncertain"))
    rows = (
        (
            Cell(type_word(one.quota_type)),
            Cell("-") if percent is None else Cell(_precise(percent), f"{percent:.5f} %"),
            count_cell(one.judged),
            count_cell(one.judged - one.agreeing),
            count_cell(one.uncertain),
        )
        for one in sorted(agreement, key=lambda one: in_order(one.quota_type))
        for percent in (agreement_percent((one,)),)
    )
    return Block("", table=table_of("Agreement by quota type", columns, rows, len(agreement)))


def _calibration(pairs: tuple[ThrottlePair, ...]) -> Iterator[Block]:
    """The longest throttles of seconds, by replay and by brokers: if both agree, their point is on the line."""
    if not pairs:
        return
    data = {
        "points": [
            [pair.longest_throttle_ms, pair.longest_throttle_by_replay_ms, pair.seconds, pair.is_certain]
            for pair in pairs
        ]
    }
    columns = (
        Column("throttle by brokers"),
        *Column.numbers("seconds", "certain", "within a fifth of it by replay"),
    )
    rows = [
        (
            Cell(name),
            count_cell(sum(pair.seconds for pair in of_length)),
            count_cell(sum(pair.seconds for pair in of_length if pair.is_certain)),
            count_cell(sum(pair.seconds for pair in of_length if _is_alike(pair))),
        )
        for name, from_ms, to_ms in _LENGTHS
        if (of_length := [pair for pair in pairs if from_ms <= pair.longest_throttle_ms < to_ms])
    ]
    label = "Longest throttle of each second by replay against that by brokers, both in logarithmic steps"
    yield Block(
        "Throttles by replay against those by brokers",
        "A point stands for seconds of buckets; on the line both agree. Hollow ones are not certain.",
        Chart("chart-calibration", "calibration", label, data),
        table_of("Throttles by replay and by brokers", columns, rows, len(rows)),
    )


def _is_alike(pair: ThrottlePair) -> bool:
    return (
        abs(pair.longest_throttle_by_replay_ms - pair.longest_throttle_ms)
        <= _ALIKE * pair.longest_throttle_ms
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each quota type, and one for each pair of throttles."""
    return {
        "agreement.csv": file_of(_AGREEMENT, report.confidence.agreement),
        "calibration.csv": file_of(_PAIR, report.throttle_pairs),
    }


SECTION = ReportSection(gather, trust_section, files)
