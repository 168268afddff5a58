"""The page of `kquota evidence`: the chain of a decision, and whether a bundle is true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import counted

if TYPE_CHECKING:
    from kquota_spark.evidence.bundle import Proof
    from kquota_spark.evidence.chain import Chain
    from kquota_spark.evidence.verification import Verified

_INDENT = 10


class Notes(NamedTuple):
    """Further lines of the page."""

    owner: str | None
    lines: str
    others: int
    bundle: Path | None


def print_chain(page: Page, proof: Proof, chain: Chain, notes: Notes) -> None:
    """Print the chain of a decision.

    Args:
        page: to print on.
        proof: whether the decision was rebuilt as the table has it.
        chain: from the line to the throttle.
        notes: further lines.
    """
    from kquota_spark.evidence.chain import chain_text, title_of

    page.paragraph("", title_of(chain.row), Tone.TITLE, indent=0)
    for label, text in chain_text(chain):
        page.paragraph(label, text, indent=_INDENT)
    if notes.owner:
        page.paragraph("owner", terminal_text(notes.owner), indent=_INDENT)
    page.paragraph("lines", notes.lines, indent=_INDENT)
    if proof.case.why_not_topic:
        text = terminal_text(f"not read: {proof.case.why_not_topic}")
        page.paragraph("topic", text, Tone.FAINT, indent=_INDENT)
    if proof.is_equal:
        page.paragraph(
            "rebuilt", "equal to the decision in the tables, byte for byte", Tone.GOOD, indent=_INDENT
        )
    else:
        behind = (
            ", which was judged before its quotas were known" if proof.case.row["is_rules_behind"] else ""
        )
        differing = ", ".join(proof.differing)
        page.paragraph(
            "rebuilt",
            f"differs from the decision in the tables{behind}: {differing}",
            Tone.OVER,
            indent=_INDENT,
        )
    if notes.others:
        text = f"{counted(notes.others, 'other decision')} of this second: --type and --broker choose"
        page.paragraph("note", text, Tone.FAINT, indent=_INDENT)
    if notes.bundle is not None:
        text = terminal_text(f"{notes.bundle}; kquota evidence --verify {notes.bundle} checks it")
        page.paragraph("bundle", text, indent=_INDENT)


def chain_value(chain: Chain) -> dict[str, Any]:
    """The chain for JSON."""
    line, verdict = chain.line, chain.verdict
    names = (
        "topic",
        "partition",
        "kafka_offset",
        "user",
        "client_id",
        "api_name",
        "correlation_id",
        "record_time_ms",
    )
    return {
        "line": {name: line[name] for name in names},
        "amount": verdict.point.amount,
        "samples": [sample._asdict() for sample in chain.samples],
        "total": chain.total,
        "window_ms": verdict.window_ms,
        "rate_per_s": verdict.rate_per_s,
        "limit_per_s": verdict.governing.limit_per_s,
        "throttle_ms": verdict.point.observed_throttle_ms,
        "throttle_by_replay_ms": verdict.throttle_ms,
        "outcome": verdict.outcome.value,
        "cause": None if verdict.cause is None else verdict.cause.value,
    }


def print_verified(path: Path, found: Verified) -> None:
    """Print whether a bundle is true, with its text or its first false link."""
    page = Page()
    false = found.false_link
    name = terminal_text(str(path))
    if false is not None:
        page.paragraph("", f"{name} is false: its first false link is {false.name}", Tone.OVER, indent=0)
        page.paragraph(false.name, terminal_text(false.problem), indent=_INDENT)
        return
    for line in found.text.splitlines():
        page.line(terminal_text(line))
    links = ", ".join(link.name for link in found.links)
    page.paragraph("verified", f"{name} is true; checked: {links}", Tone.GOOD, indent=_INDENT)
    page.paragraph("by", terminal_text(_versions(found)), indent=_INDENT)


def _versions(found: Verified) -> str:
    manifest = found.manifest
    return (
        f"kquota-spark {manifest['kquota_spark']}, schema {manifest['schema']}, ring {manifest['ring']}; "
        f"{counted(manifest['masked_names'], 'name')} of others masked"
    )
