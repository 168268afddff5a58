"""What the shadow quotas would change: buckets that they throttle or free, with the delay before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.person_units import person_ms
from kquota_spark.reports.impact.shadow_effect import Effect, ShadowBucket, shadow_effect
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Block, Cell, Column, Section, Tone, table_of
from kquota_spark.reports.parts.report_section import BUCKET_COLUMNS, CsvFile, ReportSection, file_of
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

_WORDS = {
    Effect.THROTTLED: "newly throttled",
    Effect.FREED: "freed",
    Effect.MORE: "more delay",
    Effect.LESS: "less delay",
    Effect.OPEN: "left open",
}
_TONES = {
    Effect.THROTTLED: Tone.OVER,
    Effect.MORE: Tone.NEAR,
    Effect.FREED: Tone.GOOD,
    Effect.LESS: Tone.GOOD,
}
_FILE = (
    *BUCKET_COLUMNS, "limit_per_s", "limit_after_per_s", "delay_ms", "delay_by_replay_ms",
    "delay_by_replay_after_ms", "throttled_requests_by_replay", "throttled_requests_by_replay_after", "near_seconds",
    "unknown_requests",
)  # fmt: skip


def gather(scope: Scope) -> dict[str, Any]:
    """The effect of the shadow quotas; None without any, and on a tenant's page, which shows no other client."""
    if scope.tenant is not None:
        return {"shadow": None}
    return {"shadow": shadow_effect(scope.tables, scope.settings, scope.covered)}


def is_shown(report: AuditReport) -> bool:
    """Whether a shadow was judged in the period."""
    return report.shadow is not None


def shadow_section(report: AuditReport) -> Section:
    """The buckets that the shadow quotas change, the largest difference first."""
    found = report.shadow
    assert found is not None, "is_shown"
    columns = (*words.BUCKET_COLUMNS, Column("effect", is_short=True), *Column.numbers(
        "limit", "shadow limit", "delay before", "delay after", "throttled before", "throttled after"
    ))  # fmt: skip
    rows = [(*words.bucket_cells(_name(one), report.head), *_cells(one)) for one in found.buckets]
    parts = [f"{found.count(effect)} {text}" for effect, text in _WORDS.items() if found.count(effect)]
    before_ms, after_ms = found.delay_ms
    lead = (
        f"{found.name}, version {found.version}, judged since {words.moment(found.covered.from_ms)} UTC and never "
        f"sent: {', '.join(parts) or 'no difference'}."
    )
    note = (
        f"Total delay of these buckets by replay: {person_ms(before_ms)} before, {person_ms(after_ms)} after. Requests "
        "keep their recorded times. Clients that wait get less delay under a lower limit."
    )
    table = table_of("Buckets under the shadow quotas", columns, rows, len(rows))
    return Section(
        anchor="shadow",
        short="Shadow",
        title="What would the shadow quotas change?",
        lead=lead,
        blocks=(Block("", note=note, table=table, is_table_open=True),),
    )


def _name(one: ShadowBucket) -> BucketName:
    return BucketName(one.quota_type, one.user, one.client_id, one.tags)


def _cells(one: ShadowBucket) -> tuple[Cell, ...]:
    after = words.rate_cell(one.quota_type, one.limit_after_per_s) if one.has_bucket else Cell("other bucket")
    return (
        Cell(_WORDS[one.effect], tone=_TONES.get(one.effect, Tone.PLAIN)),
        words.rate_cell(one.quota_type, one.limit_per_s),
        after,
        Cell(person_ms(one.delay_by_replay_ms), exact=f"{one.delay_by_replay_ms:,} ms"),
        Cell(_after_text(one), exact=f"{one.delay_by_replay_after_ms:,} ms"),
        words.count_cell(one.throttled_requests_by_replay),
        words.count_cell(one.throttled_requests_by_replay_after),
    )


def _after_text(one: ShadowBucket) -> str:
    at_most = "at most " if one.is_lower and one.delay_by_replay_after_ms else ""
    return f"{at_most}{person_ms(one.delay_by_replay_after_ms)}"


def files(report: AuditReport) -> Mapping[str, CsvFile]:
    """One row per bucket that changes."""
    return {"shadow.csv": file_of(_FILE, report.shadow.buckets if report.shadow else ())}


SECTION = ReportSection(gather, shadow_section, files, is_shown)
