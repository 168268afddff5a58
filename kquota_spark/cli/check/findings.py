"""`kquota findings`: problems of a cluster's quotas and their clients, and what to do about them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from kquota_spark.cli.options import TIME_FORMS, PeriodOptions, counted
from kquota_spark.cli.question import Asked, Flag, Found, Question
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Row
from kquota_spark.findings.findings import Evidence, Finding, Kind
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import iso_time
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
_MOST_ROWS = 10
_INDENT = 4
_PATIENCE_S = 1.0


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kind", action="append", choices=[kind.value for kind in Kind], metavar="KIND",
        help=f"only these, may be repeated: {', '.join(kind.value for kind in Kind)}",
    )  # fmt: skip


def _find(asked: Asked) -> Found:
    """Findings, the most severe first."""
    span, progress = asked.wanted.span, late_notice(_PATIENCE_S)
    found = findings(
        asked.settings,
        kinds=asked.own,
        since_ms=span.from_ms,
        until_ms=span.to_ms,
        progress=lambda what: progress(f"looking at {what}"),
    )
    shown, has_evidence = found[: asked.limit], bool(asked.flags)
    return Found(
        (*_COLUMNS, "evidence") if has_evidence else _COLUMNS,
        [_row(finding) for finding in shown],
        page=lambda page: _print(page, shown, len(found), has_evidence=has_evidence),
    )


def _row(finding: Finding) -> Row:
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "finding": finding.sentence,
        "advice": finding.advice,
        "evidence": [_plain(row) for row in finding.evidence],
    }


def _plain(row: Evidence) -> dict[str, Any]:
    """A row of evidence with its times in ISO 8601."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("time_ms", "first_ms", "last_ms"):
            plain[name.removesuffix("_ms")] = None if value is None else iso_time(int(value))
        else:
            plain[name] = value
    return plain


def _print(page: Page, shown: Sequence[Finding], total: int, *, has_evidence: bool) -> None:
    for finding in shown:
        head = f"{finding.severity.value:8} {finding.kind.value}  "
        page.paragraph(head, terminal_text(finding.subject), indent=len(head))
        text = f"{finding.sentence} -> {finding.advice}" if finding.advice else finding.sentence
        page.paragraph("", terminal_text(text), indent=_INDENT)
        if has_evidence:
            for line in _evidence_lines(finding):
                page.paragraph(" " * _INDENT + "|", terminal_text(line), indent=_INDENT + 2)
    more = f" of {total}; --limit 0 shows all" if total > len(shown) else ""
    foot = f"{counted(len(shown), 'finding')}{more}, most severe first" if shown else "no findings"
    page.paragraph("", foot, indent=0)


def _evidence_lines(finding: Finding) -> Iterator[str]:
    for row in finding.evidence[:_MOST_ROWS]:
        yield "  ".join(f"{name}={_value_text(value)}" for name, value in _plain(row).items())
    if len(finding.evidence) > _MOST_ROWS:
        yield f"... {len(finding.evidence) - _MOST_ROWS} more rows: --output json"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


QUESTION = Question(
    command="findings", table=None, find=_find, options=_options,
    own=lambda options: [Kind(name) for name in options.kind or Kind],
    period=PeriodOptions(f"read nothing older: {TIME_FORMS}", "read nothing newer, and use the rules of that time"),
    flags=(Flag("--evidence", "also the rows behind each finding"),),
)  # fmt: skip
add_commands = QUESTION.add_to
