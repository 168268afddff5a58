"""What to do: recommendations, each with the command that shows what it would do, and all raises together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import broker_text, counted, person_ms, type_text
from kquota_spark.reports.advice.quota_command import with_settings
from kquota_spark.reports.advice.throttle_causes import causes, uses_of
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Advice, Block, Cell, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope, is_without_quotas
from kquota_spark.reports.scope.shared_rows import BucketName, RaiseSum, Recommendation
from kquota_spark.reports.sections.changes import changes, quota_type_of
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.sections.unprotected import observed
from kquota_spark.reports.sections.why import worst_reasons

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

MOST_ADVICE = 50
MOST_WORST = 3
"""Maximum buckets with which the page begins."""
_COLUMNS = (
    "entity", "key", "present", "recommended", "reason", "command", "title", "delay_ms", "cause", "confidence",
    "expected", "headroom", "least", "is_left", "estimate",
)  # fmt: skip
_RAISES = ("broker_id", "quota_type", "raises", "least_more_per_s", "more_per_s", "headroom_per_s")


@dataclass(frozen=True, slots=True)
class BucketCause:
    """The likely cause of a bucket's throttling, as a sentence."""

    bucket: BucketName
    cause: str


def gather(scope: Scope) -> dict[str, Any]:
    """The recommendations, the sums of the raises, and the causes of the buckets with which the page begins."""
    # What recommends loads the replay and the policies, which commands that read one section can do without.
    from kquota_spark.reports.advice.headroom import headroom, raise_sums
    from kquota_spark.reports.advice.recommendations import recommendations
    from kquota_spark.reports.right_sizes.period_sizes import period_sizes

    throttled, found_changes = scope.once(throttled_buckets).shown, scope.once(changes)[0]
    room = headroom(scope.settings, scope) if throttled and scope.tenant is None else {}
    sizes = scope.once(period_sizes).by_bucket
    uses = uses_of(scope, throttled)
    found, left_out = recommendations(
        scope, scope.settings, scope.once(observed), throttled, uses, found_changes,
        is_without_quotas=scope.once(is_without_quotas), room=room, why=scope.once(worst_reasons).found,
        sizes=sizes,
    )  # fmt: skip
    worst = causes(
        uses, throttled[:MOST_WORST], found_changes, scope.once(worst_reasons).found, with_day=True
    )
    return {
        "causes": [BucketCause(bucket, cause.sentence) for bucket, cause in sorted(worst.items())],
        "recommendations": [with_settings(one, scope.settings.file) for one in found],
        "recommendations_left_out": left_out,
        "raises": raise_sums(found, room) if scope.tenant is None else (),
    }


def to_do_section(report: AuditReport) -> Section:
    """Recommendations, each with the command that shows what it would do."""
    head = report.head
    shown = report.recommendations[:MOST_ADVICE]
    count = len(report.recommendations) + report.recommendations_left_out
    more = count - len(shown)
    title = "What to do" if head.tenant is None else "What can you do?"
    if not shown:
        lead = "Nothing is recommended from what this period shows."
    elif head.tenant is not None:
        lead = "What your clients can do, then what to ask for where quotas are set."
    elif head.is_first_look:
        lead = f"{counted(count, 'starting value')}; every command shows first what it would do."
    else:
        lead = f"{counted(count, 'step')}; every command shows first what it would do."
    return Section(
        anchor="to-do",
        short="To do",
        title="Where to begin" if head.is_first_look else title,
        lead=f"{lead} The largest are shown; {more:,} more are left out." if more else lead,
        advice=tuple(_advice(one, card_anchor(number)) for number, one in enumerate(shown, 1)),
        blocks=tuple(_sums(report.raises)),
    )


def _sums(raises: Sequence[RaiseSum]) -> Iterator[Block]:
    """All raises together, by broker and type, beside the headroom."""
    if not raises:
        return
    columns = (
        Column("type", is_short=True),
        *Column.numbers("broker", "raises", "least values", "recommended", "headroom"),
    )
    rows = (
        (
            Cell(type_text(one.quota_type)),
            Cell(broker_text(one.broker_id)),
            words.count_cell(one.raises),
            *(_more(one, value) for value in (one.least_more_per_s, one.more_per_s)),
            Cell("not known") if one.headroom_per_s is None else _room(one.quota_type, one.headroom_per_s),
        )
        for one in raises
    )
    note = (
        "What all raises of this section add together, with their least values and with their recommended ones. The "
        "headroom is what policies of the kind raise may still add. It is known where such a policy states the "
        "capacity of a broker."
    )
    yield Block(
        "All raises together",
        note=note,
        table=table_of("Raises by broker", columns, rows, len(raises)),
        is_table_open=True,
    )


def _more(one: RaiseSum, value: float) -> Cell:
    is_over = one.headroom_per_s is not None and value > one.headroom_per_s
    cell = words.rate_cell(one.quota_type, value)
    return replace(cell, text=f"+{cell.text}", tone=Tone.OVER if is_over else Tone.PLAIN)


def _room(quota_type: str, value: float) -> Cell:
    return words.rate_cell(quota_type, value) if value > 0 else Cell("none", tone=Tone.OVER)


def card_anchor(number: int) -> str:
    """The id of the advice card with this number, from 1."""
    return f"card-{number}"


def action_of(one: Recommendation, *, is_own: bool) -> str:
    """The advice in a few words: `raise 300 kB/s to 570 kB/s`; on a tenant's page `ask for 570 kB/s`."""
    kind = quota_type_of(one.key)
    if one.title:
        return one.title
    if one.is_left:
        return "leave it"
    if one.recommended is None:
        return "remove the quota" if one.command else "check the clients"
    wanted = words.rate_cell(kind, one.recommended).text
    if is_own:
        return f"ask for {wanted}"
    if one.present is None:
        return f"set {wanted}"
    verb = "raise" if one.recommended > one.present else "lower"
    return f"{verb} {words.rate_cell(kind, one.present).text} to {wanted}"


def _advice(one: Recommendation, anchor: str) -> Advice:
    kind = quota_type_of(one.key)
    change = ""
    if one.key:
        present, least, recommended = (
            words.rate_cell(kind, value).text for value in (one.present, one.least, one.recommended)
        )
        # Without a recommended value, only the removal of a quota has a command.
        change = f"{one.key} {present}"
        if one.least is not None and one.recommended is not None and one.least < one.recommended:
            change += f" → {least} to {recommended}" if least != recommended else f" → {recommended}"
        elif one.recommended is not None or one.command:
            change += f" → {recommended}"
        elif one.is_left:
            change += ", no change"
    facts = (
        ("Total delay", person_ms(one.delay_ms) if one.delay_ms and one.key else ""),
        ("Cause", one.cause),
        ("Confidence", one.confidence),
        ("With this value", one.expected),
        ("Headroom", one.headroom),
    )
    return Advice(
        one.title or (words.entity_of(one.entity) if one.entity else "The cluster"),
        change,
        words.sentence(one.reason),
        one.command,
        tuple((name, words.sentence(text)) for name, text in facts if text),
        tuple((words.sentence(other.text), other.command) for other in one.alternatives),
        anchor,
    )


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each recommendation, and one for each broker and quota type with raises."""
    return {
        "recommendations.csv": file_of(_COLUMNS, report.recommendations),
        "raises.csv": file_of(_RAISES, report.raises),
    }


SECTION = ReportSection(gather, to_do_section, files)
