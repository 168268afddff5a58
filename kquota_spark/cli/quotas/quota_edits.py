"""Edits of a cluster's quotas as a person meets them: shown, asked about, made, and what became of each.

`import` and `alter` share it. `carry_out` is the whole way, from the edits to the exit code:

    add_edit_options(parser)                        # --dry-run, --yes, --output
    edits = list(edits_between(cluster.read(), wanted, keep_others=True))
    return carry_out(cluster, edits, choices_of(options), command="kquota import")

Its steps can be taken one by one: `show_edits` before the question; `confirmed` asks it on a terminal (without one
--yes is needed, else it exits with 2); `applied_edits.apply_edits` makes the edits in place, or with `validate_only`
only asks the cluster whether it would take them; `show_results` tells; `exit_code` is 0 if all is done and 1 if an
entity was refused or failed. In JSON, YAML and CSV standard output holds one answer only: the question and what it is
about go to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from kquota_spark.cli.options.options import add_form_option
from kquota_spark.cli.quotas.applied_edits import EntityResult, Status, apply_edits, by_entity, exit_code
from kquota_spark.cli.text.page import Page, say
from kquota_spark.cli.text.render import Colour, Format, Report, Row, Shown, show, table_report
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.quotas.cluster_quotas import ClusterQuotas

_COLUMNS = ("entity", "key", "before", "after", "change", "status", "detail")
_MOST_NOTES = 10
_MOST_EXACT = 1e20
"""Beyond it, and beyond every long of Kafka's, the digits of a double are not those that anybody wrote."""


def add_edit_options(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run, --yes and --output."""
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing: show the edits, and whether the cluster would take them",
    )
    ways.add_argument(
        "--yes", action="store_true", help="do it without asking; needed where there is no terminal"
    )
    add_form_option(parser)


class EditChoices(NamedTuple):
    """What `add_edit_options` were given."""

    form: Format
    is_dry_run: bool
    is_agreed: bool


def choices_of(options: argparse.Namespace) -> EditChoices:
    """What `add_edit_options` were given."""
    return EditChoices(options.output, options.dry_run, options.yes)


def carry_out(
    cluster: ClusterQuotas,
    edits: Sequence[QuotaEdit],
    choices: EditChoices,
    *,
    command: str,
    unchanged: int = 0,
    notes: Sequence[str] = (),
) -> int:
    """Show, ask, apply and tell; returns the exit code.

    Args:
        cluster: whose quotas.
        edits: by entity; empty if there is nothing to change, which is said.
        choices: what `add_edit_options` were given.
        command: for the envelope, e.g. `kquota import`.
        unchanged: how many entities that were asked for are already as wanted.
        notes: what to know before agreeing.
    """
    _print_notes(notes, choices.form)
    if choices.is_dry_run:
        results = apply_edits(cluster, edits, validate_only=True)
    else:
        if edits and not choices.is_agreed:
            show_edits(edits, choices.form, command=command, origin=cluster.origin, notes=notes)
            question = f"Change {entities_text(len({edit.entity for edit in edits}))} of {cluster.origin}?"
            if not confirmed(question):
                say("nothing was changed", sys.stderr)
                return 1
        results = apply_edits(cluster, edits)
    show_results(
        results, choices.form, command=command, origin=cluster.origin, unchanged=unchanged, notes=notes
    )
    return exit_code(results)


def _print_notes(notes: Sequence[str], form: Format) -> None:
    page = Page(sys.stdout if form == "table" else sys.stderr)
    for note in notes[:_MOST_NOTES]:
        page.paragraph("", terminal_text(note), indent=0)
    if len(notes) > _MOST_NOTES:
        page.paragraph("", f"... and {len(notes) - _MOST_NOTES:,} more notes: --output json", indent=0)


def show_edits(
    edits: Sequence[QuotaEdit],
    form: Format,
    *,
    command: str,
    origin: str,
    notes: Sequence[str],
) -> None:
    """Print edits that are not made yet: the question is about them."""
    results = [EntityResult(entity, of_one, Status.PLANNED) for entity, of_one in by_entity(edits)]
    report = _report(results, command, origin, f"to be changed: {_sum_text(edits)}", notes=notes)
    if form == "table" or not _can_ask():
        show(report, form)
    else:
        say(table_report(report).rstrip("\n"), sys.stderr)


def confirmed(question: str) -> bool:
    """Whether the person agrees.

    Raises:
        SystemExit: with 2, as for wrong usage: there is nobody to ask.
    """
    if not _can_ask():
        say("kquota: there is no terminal to ask on, and nothing was changed: --yes does it", sys.stderr)
        raise SystemExit(2)
    sys.stdout.flush()
    sys.stderr.write(f"{terminal_text(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show_results(
    results: Sequence[EntityResult],
    form: Format,
    *,
    command: str,
    origin: str,
    unchanged: int = 0,
    notes: Sequence[str] = (),
) -> None:
    """Print what became of the edits; notes were told before, and stand in the envelope."""
    show(_report(results, command, origin, _told(results, unchanged), unchanged, notes), form)


def _told(results: Sequence[EntityResult], unchanged: int) -> str:
    """`entities: 3 applied, 1 refused, 12 unchanged`."""
    if not results:
        return f"nothing to change: {unchanged:,} as wanted" if unchanged else "nothing to change"
    counts = [(sum(result.status is status for result in results), status.value) for status in Status]
    counts.append((unchanged, "unchanged"))
    return f"entities: {', '.join(f'{count:,} {word}' for count, word in counts if count)}"


def _report(
    results: Sequence[EntityResult],
    command: str,
    origin: str,
    said: str,
    unchanged: int = 0,
    notes: Sequence[str] = (),
) -> Report:
    rows = [_row(result, edit) for result in results for edit in result.edits]
    # The cluster's words stand below the table, whole: in a column they would be cut.
    lines = [
        f"{result.entity}: {result.status.value}: {result.detail}" for result in results if result.detail
    ]
    footer = "\n".join(terminal_text(line) for line in [*lines, f"{said} ({origin})"])
    return Report(
        command, _COLUMNS, rows, _shown(), footer=footer, when_empty=footer, colour=_colour,
        envelope={"cluster": origin, "unchanged": unchanged, "notes": list(notes)},
    )  # fmt: skip


def _row(result: EntityResult, edit: QuotaEdit) -> Row:
    return {
        "entity": str(edit.entity),
        "key": edit.key.value,
        "before": edit.before,
        "after": edit.after,
        "change": _change(edit),
        "status": result.status.value,
        "detail": result.detail or None,
    }


def _shown() -> tuple[Shown, ...]:
    return (
        Shown("entity", lambda row: row["entity"], is_text=True, keep=20),
        Shown("key", lambda row: row["key"], is_text=True, keep=18),
        Shown("before", lambda row: exact_text(row["before"])),
        Shown("after", lambda row: exact_text(row["after"])),
        Shown("change", lambda row: row["change"], is_text=True, keep=7, rank=2),
        Shown("status", lambda row: row["status"], is_text=True, keep=16),
    )


def exact_text(value: float | None) -> str:
    """A value in Kafka's unit, every digit: who agrees to an edit must not see 1,000,001 as 1.0 MB/s."""
    if value is None:
        return "-"
    return f"{int(value):,}" if value == value // 1 and abs(value) < _MOST_EXACT else repr(value)


def _change(edit: QuotaEdit) -> str:
    """The words of an edit. What is removed falls to the next level, which may be higher or lower."""
    if edit.after is None:
        return "removed"
    if edit.before is None:
        return "set"
    return "raised" if edit.after > edit.before else "lowered"


def _sum_text(edits: Sequence[QuotaEdit]) -> str:
    """`3 entities; values: 2 raised, 1 removed`."""
    words = [_change(edit) for edit in edits]
    counts = [
        f"{words.count(word):,} {word}" for word in ("set", "raised", "lowered", "removed") if word in words
    ]
    return f"{entities_text(len({edit.entity for edit in edits}))}; values: {', '.join(counts)}"


def entities_text(count: int) -> str:
    """`1 entity`, `2,000 entities`."""
    return f"{count:,} {'entity' if count == 1 else 'entities'}"


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _colour(row: Row) -> Colour | None:
    if row["status"] in (Status.REFUSED.value, Status.FAILED.value, Status.NOT_TRIED.value):
        return Colour.RED
    return Colour.YELLOW if row["change"] == "removed" else None
