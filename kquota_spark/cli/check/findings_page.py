"""The page of `kquota findings`: each finding with its advice and, if asked for, its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kquota_spark.cli.text.page import Page
from kquota_spark.findings.findings import Evidence, Finding
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import counted, iso_time

_MOST_ROWS = 10
_INDENT = 4


def plain_evidence(row: Evidence) -> dict[str, Any]:
    """A row of evidence with its times in ISO 8601."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("time_ms", "first_ms", "last_ms"):
            plain[name.removesuffix("_ms")] = None if value is None else iso_time(int(value))
        else:
            plain[name] = value
    return plain


def print_findings(page: Page, shown: Sequence[Finding], total: int, *, has_evidence: bool) -> None:
    """Print findings, each with its advice.

    Args:
        page: to print on.
        shown: the most severe first.
        total: number of findings with those that are not shown.
        has_evidence: whether to print the rows behind each one.
    """
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
        yield "  ".join(f"{name}={_value_text(value)}" for name, value in plain_evidence(row).items())
    if len(finding.evidence) > _MOST_ROWS:
        yield f"... {len(finding.evidence) - _MOST_ROWS} more rows: --output json"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
