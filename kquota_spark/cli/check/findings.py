"""`kquota findings`: problems of a cluster's quotas and their clients, and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kquota_spark.cli.check.findings_page import plain_evidence, print_findings
from kquota_spark.cli.options import TIME_FORMS, PeriodOptions
from kquota_spark.cli.own_options import option
from kquota_spark.cli.question import Asked, Flag, Found, Question
from kquota_spark.cli.text.render import Row
from kquota_spark.findings.findings import Finding, Kind
from kquota_spark.process.notices import late_notice
from kquota_spark.reports.clients.findings import findings

COMMANDS = {
    "findings": (
        "answers",
        "what is wrong with quotas and clients: who ignores throttling, which rules do nothing, ...",
        "kquota findings --since 7d",
        "kquota findings --kind UNMETERED --evidence",
    ),
}

_COLUMNS = ("kind", "severity", "subject", "finding", "advice")
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Own:
    kinds: Sequence[str] | None = option(
        "--kind", f"only these, may be repeated: {', '.join(kind.value for kind in Kind)}", action="append",
        choices=[kind.value for kind in Kind], metavar="KIND",
    )  # fmt: skip


def _find(asked: Asked) -> Found:
    """Findings, the most severe first."""
    span, progress = asked.wanted.span, late_notice(_PATIENCE_S)
    found = findings(
        asked.settings,
        kinds=[Kind(name) for name in asked.own.kinds or Kind],
        since_ms=span.from_ms,
        until_ms=span.to_ms,
        progress=lambda what: progress(f"looking at {what}"),
    )
    shown, has_evidence = found[: asked.limit], bool(asked.flags)
    return Found(
        (*_COLUMNS, "evidence") if has_evidence else _COLUMNS,
        [_row(finding) for finding in shown],
        page=lambda page: print_findings(page, shown, len(found), has_evidence=has_evidence),
    )


def _row(finding: Finding) -> Row:
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "finding": finding.sentence,
        "advice": finding.advice,
        "evidence": [plain_evidence(row) for row in finding.evidence],
    }


QUESTION = Question(
    command="findings", table=None, find=_find, options=None, declared=_Own,
    period=PeriodOptions(f"read nothing older: {TIME_FORMS}", "read nothing newer, and use the rules of that time"),
    flags=(Flag("--evidence", "also the rows behind each finding"),),
)  # fmt: skip
add_commands = QUESTION.add_to
