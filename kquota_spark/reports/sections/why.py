"""Why the worst buckets were throttled: a waterfall of causes that adds up to the delay, and who slowed whom.

A tenant's page has the causes of the tenant's own buckets. For a bucket that is shared with others it has one sum:
what the others caused of the tenant's delay. It names none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import counted, person_ms, person_name
from kquota_spark.model.attribution.causes import NAMED_PERCENT
from kquota_spark.model.attribution.counterfactuals import Client
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.attribution.sharing import OTHERS, Sharing
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Chart, Column, Section, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, ReportSection, names_of
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.sections.throttled import throttled_buckets
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.of_scope import WhyThrottled, reasons_of, reasons_of_shared
from kquota_spark.reports.why.sentences import (
    CURES,
    TITLES,
    cure_of,
    evidence_text,
    main_cure,
    main_sentence,
    title_of,
)

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

MOST_SHOWN = 3
"""Maximum buckets with a waterfall on the page."""
_REST = "without these causes"
_MOST_APART_PERCENT = 1.0
"""A replay that is more apart from the brokers' delay is named on the page."""


@dataclass(frozen=True, slots=True)
class CausePart:
    """One cause of a bucket's delay, or the rest without all causes; the parts add up to the delay by replay."""

    cause: str
    title: str
    share_ms: int
    share_percent: float
    delay_without_ms: int
    evidence: str
    """What shows it, in one sentence."""
    cure: str


@dataclass(frozen=True, slots=True)
class ClientPart:
    """One client of a shared bucket; the caused and the suffered delays of all have the same sum."""

    client: str
    caused_ms: int
    suffered_ms: int
    caused_to_others_ms: int
    standard_error_ms: float


@dataclass(frozen=True, slots=True)
class BucketWhy:
    """Why one bucket was throttled. On a tenant's page a shared bucket has only `by_others_ms`."""

    bucket: BucketName
    from_ms: int
    to_ms: int
    delay_ms: int
    """By brokers."""
    by_replay_ms: int
    sentence: str
    cure: str
    causes: tuple[CausePart, ...] = ()
    clients: tuple[ClientPart, ...] = ()
    by_others_ms: int | None = None
    """The part of a tenant's delay that other clients of the bucket caused; None for a bucket of its own."""


def worst_reasons(scope: Scope) -> WhyThrottled:
    """The causes of the buckets with the most total delay, which several sections show."""
    return reasons_of(scope, scope.once(throttled_buckets).shown)


def gather(scope: Scope) -> dict[str, Any]:
    """The worst buckets with their causes."""
    found = [
        _why(one) for one in scope.once(worst_reasons).found.values() if one.attribution.main is not None
    ]
    if scope.tenant is not None:
        shared = reasons_of_shared(scope, scope.once(throttled_buckets).shown)
        found += [_of_tenant(one, one.sharing, scope.tenant) for one in shared if one.sharing is not None]
    return {"why": sorted(found, key=lambda one: (-one.delay_ms, one.bucket))}


def _why(found: Reasons) -> BucketWhy:
    attribution, quota_type = found.attribution, found.bucket.quota_type
    parts = [
        CausePart(
            part.cause.value, title_of(part), part.share_ms, part.share_percent, part.without_ms,
            evidence_text(part, quota_type), cure_of(part),
        )
        for part in attribution.parts
    ]  # fmt: skip
    steady = Cause.STEADY
    is_steady = attribution.main is steady
    rest = CausePart(
        steady.value, TITLES[steady] if is_steady else _REST, attribution.rest_ms, attribution.rest_percent,
        attribution.delay_ms - attribution.rest_ms,
        main_sentence(found) if is_steady else "the delay without all causes", CURES[steady] if is_steady else "",
    )  # fmt: skip
    clients = [
        ClientPart(
            _name(each.client, found.sharing), each.caused_ms, each.suffered_ms, each.of_others_ms,
            each.standard_error_ms,
        )
        for each in (found.sharing.clients if found.sharing else ())
    ]  # fmt: skip
    return BucketWhy(
        found.bucket, found.from_ms, found.to_ms, found.delay_ms, attribution.delay_ms, main_sentence(found),
        main_cure(found), (*parts, rest), tuple(clients),
    )  # fmt: skip


def _of_tenant(found: Reasons, sharing: Sharing, tenant: str) -> BucketWhy:
    """The delay of a tenant in a shared bucket, and what others caused of it."""
    own = {client for client, _ in sharing.matrix if client[0] == tenant}
    suffered_ms = sum(delay_ms for (_, of), delay_ms in sharing.matrix.items() if of in own)
    by_others_ms = sum(
        delay_ms for (by, of), delay_ms in sharing.matrix.items() if of in own and by not in own
    )
    percent = 100 * by_others_ms / suffered_ms if suffered_ms else 0.0
    sentence = f"others in the bucket caused {percent:.0f} % of your {person_ms(suffered_ms)} of delay"
    return BucketWhy(
        found.bucket, found.from_ms, found.to_ms, suffered_ms, suffered_ms, sentence,
        "ask for a quota of your own, if that is much", by_others_ms=by_others_ms,
    )  # fmt: skip


def _name(client: Client, sharing: Sharing | None) -> str:
    if client == OTHERS and sharing is not None and sharing.others:
        return counted(sharing.others, "other client")
    return " / ".join(map(person_name, client))


def is_shown(report: AuditReport) -> bool:
    """Whether some cause is known."""
    return bool(report.why)


def why_section(report: AuditReport) -> Section:
    """One waterfall per bucket with its table, and for shared buckets who slowed whom."""
    is_own = report.head.tenant is not None
    shown = report.why[:MOST_SHOWN]
    more = len(report.why) - len(shown)
    first = shown[0]
    lead = f"{words.bucket_of(first.bucket, report.head)}: {first.sentence}."
    return Section(
        anchor="why",
        short="Why",
        title="Why were you throttled?" if is_own else "Why were they throttled?",
        lead=f"{lead} {more:,} more buckets are in the files for programs." if more else lead,
        blocks=tuple(block for number, one in enumerate(shown, 1) for block in _blocks(report, one, number)),
    )


def _blocks(report: AuditReport, one: BucketWhy, number: int) -> Iterator[Block]:
    name = f"{words.bucket_of(one.bucket, report.head)}, {words.type_word(one.bucket.quota_type)}"
    note = words.sentence(f"{one.sentence}. Usual cure: {one.cure}")
    if 100 * abs(one.by_replay_ms - one.delay_ms) > _MOST_APART_PERCENT * one.delay_ms:
        by_replay, by_brokers = person_ms(one.by_replay_ms), person_ms(one.delay_ms)
        note += f" Causes are parts of the replay, {by_replay}; brokers had {by_brokers}."
    if not one.causes:
        yield Block(name, note)
        return
    steps = list(_steps(one))
    data = {
        "labels": [*(title for title, _, _ in steps), "total delay"],
        "values": [*(delay_ms / 1_000 for _, delay_ms, _ in steps), one.by_replay_ms / 1_000],
        "texts": [*(_signed(delay_ms) for _, delay_ms, _ in steps), person_ms(one.by_replay_ms)],
        "hover": [*(evidence for _, _, evidence in steps), "by replay of the recorded requests"],
    }
    label = f"How the causes add up to the total delay of {name}: {one.sentence}"
    yield Block(
        name,
        note,
        Chart(f"chart-why-{number}", "waterfall", label, data),
        _causes(one, name),
        is_table_open=True,
    )
    if one.clients:
        yield Block(
            f"Who slowed whom in {name}",
            "A client suffers the throttles of its own requests. It causes what its requests add to the delay of all. "
            "Both add up to the same delay.",
            table=_clients(one, name),
            is_table_open=True,
        )


def _steps(one: BucketWhy) -> Iterator[tuple[str, int, str]]:
    """Title, delay (ms) and evidence of each step; the causes below a tenth are one."""
    *causes, rest = one.causes
    yield rest.title, rest.share_ms, rest.evidence
    smaller_ms = sum(part.share_ms for part in causes if part.share_percent < NAMED_PERCENT)
    if smaller_ms:
        yield "smaller causes", smaller_ms, "causes below a tenth of the delay, together"
    for part in reversed(causes):
        if part.share_percent >= NAMED_PERCENT:
            yield part.title, part.share_ms, part.evidence


def _causes(one: BucketWhy, name: str) -> Any:
    columns = (
        Column("cause", is_short=True),
        *Column.numbers("part of the delay", "delay", "delay without it"),
        Column("evidence"),
    )
    rows = (
        (
            Cell(part.title),
            words.share_cell(part.share_percent),
            _delay_cell(part.share_ms),
            Cell("-") if part is one.causes[-1] else _delay_cell(part.delay_without_ms),
            Cell(part.evidence),  # it may begin with a name, which keeps its first letter
        )
        for part in one.causes
    )
    return table_of(f"Causes of the delay of {name}", columns, rows, len(one.causes))


def _clients(one: BucketWhy, name: str) -> Any:
    columns = (Column("client"), *Column.numbers("caused", "suffered", "caused to others", "standard error"))
    rows = (
        (
            Cell(each.client),
            *(
                _delay_cell(delay_ms)
                for delay_ms in (each.caused_ms, each.suffered_ms, each.caused_to_others_ms)
            ),
            Cell(person_ms(each.standard_error_ms) if each.standard_error_ms else "exact"),
        )
        for each in one.clients
    )
    return table_of(f"Delay that clients caused and suffered in {name}", columns, rows, len(one.clients))


def _delay_cell(delay_ms: int) -> Cell:
    return Cell(_signed(delay_ms), exact=f"{delay_ms} ms")


def _signed(delay_ms: int) -> str:
    return person_ms(delay_ms) if delay_ms >= 0 else f"-{person_ms(-delay_ms)}"


_PERIOD = ("from_ms", "to_ms")
_OF_CAUSE = ("cause", "share_ms", "share_percent", "delay_without_ms", "evidence", "cure")
_OF_CLIENT = ("client", "caused_ms", "suffered_ms", "caused_to_others_ms", "standard_error_ms")


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row for each cause, and one for each client of a shared bucket."""
    return {
        "causes.csv": CsvFile(
            (*BUCKET_COLUMNS, *_PERIOD, *_OF_CAUSE), list(_rows(report.why, "causes", _OF_CAUSE))
        ),
        "slowed.csv": CsvFile(
            (*BUCKET_COLUMNS, *_PERIOD, *_OF_CLIENT), list(_rows(report.why, "clients", _OF_CLIENT))
        ),
    }


def _rows(found: Sequence[BucketWhy], name: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for one in found:
        for part in getattr(one, name):
            values = (getattr(part, column) for column in columns)
            yield (*names_of(one.bucket), one.from_ms, one.to_ms, *values)


SECTION = ReportSection(gather, why_section, files, is_shown)
