"""Edits of a cluster's quotas by a person: show, ask, apply, and report the outcome of each.

`carry_out` does all steps for `import` and `alter`, from the edits to the exit code. `kfk` does not ask, and uses only
the last steps. In JSON, YAML and CSV, standard output has a single answer, and the question goes to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from kquota_spark.cli.exit_codes import DONE, ERROR, NOTHING
from kquota_spark.cli.options import add_form_option
from kquota_spark.cli.quotas.undo import prepared_undo
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import Colour, Format, Report, Row, Shown, show, table_report
from kquota_spark.enforce.ports import Change, Cluster, Outcome
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet

_COLUMNS = ("entity", "key", "before", "after", "change", "status", "detail")
_PROGRESS_EVERY_S = 2.0
_MOST_NOTES = 10
_MOST_EXACT = 1e20
"""Largest value to print as an integer: above it, and above Kafka's longs, a double's digits are not exact."""


class Status(Enum):
    """The outcome of the edits of one entity; the value is the text of tables and JSON."""

    PLANNED = "planned"
    APPLIED = "applied"
    ACCEPTED = "would be applied"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_TRIED = "not tried"

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self in (Status.APPLIED, Status.ACCEPTED)


@dataclass(frozen=True, slots=True)
class EntityResult:
    """The outcome of all edits of one entity, which succeed or fail together; `detail` is the cluster's message."""

    entity: AnyEntity
    edits: tuple[QuotaEdit, ...]
    status: Status
    detail: str = ""


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
    """The values of the options of `add_edit_options`."""

    form: Format
    is_dry_run: bool
    is_agreed: bool


def choices_of(options: argparse.Namespace) -> EditChoices:
    """The values of the options of `add_edit_options`."""
    return EditChoices(options.output, options.dry_run, options.yes)


def carry_out(
    cluster: Cluster,
    edits: Sequence[QuotaEdit],
    choices: EditChoices,
    *,
    command: str,
    unchanged: int,
    notes: Sequence[str],
    before: QuotaSet,
    where: Sequence[str],
) -> int:
    """Show, ask, apply and report, with the command that undoes it.

    Args:
        cluster: the cluster to edit.
        edits: grouped by entity; if empty, the report contains only that there is nothing to change.
        choices: the values of the options of `add_edit_options`.
        command: for the envelope, e.g. `kquota import`.
        unchanged: number of requested entities that already have the wanted values.
        notes: sentences to print before the question.
        before: all quotas of the cluster, for the way back.
        where: options that name the cluster again.

    Returns:
        The exit code.
    """
    form, origin = choices.form, cluster.origin
    _print_notes(notes, form)
    if edits and not (choices.is_dry_run or choices.is_agreed):
        planned = [EntityResult(entity, of_one, Status.PLANNED) for entity, of_one in _by_entity(edits)]
        report = edits_report(command, origin, planned, notes)
        if form == "table" or not sys.stdin.isatty():
            show(report, form)
        else:
            print_line(table_report(report).rstrip("\n"), sys.stderr)
        if not _is_agreed(f"Change {entities_text(len(planned))} of {origin}?"):
            print_line("nothing was changed", sys.stderr)
            return NOTHING
    results, undo = undoable_edits(cluster, edits, before, where, is_dry_run=choices.is_dry_run)
    show(edits_report(command, origin, results, notes, unchanged, undo), form)
    print_undo(undo, form)
    return exit_code(results)


def undoable_edits(
    cluster: Cluster,
    edits: Sequence[QuotaEdit],
    before: QuotaSet,
    where: Sequence[str] | None,
    *,
    is_dry_run: bool,
) -> tuple[list[EntityResult], str]:
    """Prepare the way back, then apply edits.

    Args:
        cluster: the cluster to edit.
        edits: grouped by entity; some may change nothing.
        before: all quotas of the cluster.
        where: options that name the cluster again; None to prepare no way back.
        is_dry_run: only ask whether the cluster would take them.

    Returns:
        The results, and the line with the way back; it is empty if nothing was changed.
    """
    changing = [edit for edit in edits if edit.before != edit.after]
    if is_dry_run or where is None or not changing:
        return apply_edits(cluster, edits, validate_only=is_dry_run), ""
    undo = prepared_undo(changing, before, where)
    results = apply_edits(cluster, edits)
    # After no answer, the edit may have arrived.
    if any(result.status in (Status.APPLIED, Status.FAILED) for result in results):
        return results, undo.line
    undo.forget()
    return results, ""


def print_undo(line: str, form: Format) -> None:
    """Print an undo line below a table, on one line of any length; the other forms have it in the envelope."""
    if line and form == "table":
        print_line(line)
    elif line and form == "csv":
        print_line(line, sys.stderr)


def _print_notes(notes: Sequence[str], form: Format) -> None:
    page = Page(sys.stdout if form == "table" else sys.stderr)
    for note in notes[:_MOST_NOTES]:
        page.paragraph("", terminal_text(note), indent=0)
    if len(notes) > _MOST_NOTES:
        page.paragraph("", f"... and {len(notes) - _MOST_NOTES:,} more notes: --output json", indent=0)


def _is_agreed(question: str) -> bool:
    """Whether the person agrees. Without a terminal to ask on, nobody does."""
    if not sys.stdin.isatty():
        print_line("kquota: there is no terminal to ask on; add --yes to do it", sys.stderr)
        return False
    sys.stdout.flush()
    sys.stderr.write(f"{terminal_text(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def apply_edits(
    cluster: Cluster, edits: Iterable[QuotaEdit], *, validate_only: bool = False
) -> list[EntityResult]:
    """Apply edits in place, one request per entity.

    A refused edit does not stop the others. But after a refused value, edits that only remove are not tried: the old
    quota may be what limits the clients that the value is for. After no answer the rest is not tried, because it would
    wait as long. After Ctrl-C the rest is not tried either, so that the person sees how far it came.

    Args:
        cluster: the cluster to edit.
        edits: grouped by entity.
        validate_only: only ask whether the cluster would take them.
    """
    waiting = list(_by_entity(edits))
    results: list[EntityResult] = []
    shown_s = time.monotonic()
    failed = has_refused_value = False
    for entity, of_one in waiting:
        has_value = any(edit.after is not None for edit in of_one)
        if failed or (has_refused_value and not has_value):
            results.append(EntityResult(entity, of_one, Status.NOT_TRIED))
            continue
        status, words = _applied(cluster, entity, of_one, validate_only=validate_only)
        results.append(EntityResult(entity, of_one, status, words))
        failed = status is Status.FAILED
        has_refused_value |= has_value and status is Status.REFUSED
        if time.monotonic() - shown_s > _PROGRESS_EVERY_S and sys.stderr.isatty():
            print_line(f"{len(results):,} of {len(waiting):,} entities", sys.stderr)
            shown_s = time.monotonic()
    return results


def _applied(
    cluster: Cluster, entity: AnyEntity, edits: Sequence[QuotaEdit], *, validate_only: bool
) -> tuple[Status, str]:
    """The outcome of the edits of one entity, and the message of the cluster; after `FAILED` they may be applied."""
    change = Change(entity, {edit.key: edit.after for edit in edits})
    try:
        if validate_only:
            refusal = cluster.refusal(change)
            return (Status.ACCEPTED, "") if refusal is None else (Status.REFUSED, refusal)
        outcome, detail = cluster.write(change)
    except (UserError, KeyboardInterrupt) as error:
        unknown = "" if validate_only else f"; whether {entity} was altered is not known"
        return Status.FAILED, str(error) or f"interrupted{unknown}"
    if outcome is Outcome.DONE:
        return Status.APPLIED, ""
    return (Status.FAILED if outcome is Outcome.UNKNOWN else Status.REFUSED), detail


def exit_code(results: Iterable[EntityResult]) -> int:
    """`DONE` if all edits succeeded, or would; `ERROR` if an entity was refused or failed."""
    return DONE if all(result.status.is_done for result in results) else ERROR


def _by_entity(edits: Iterable[QuotaEdit]) -> Iterator[tuple[AnyEntity, tuple[QuotaEdit, ...]]]:
    """The edits by entity; the edits of an entity must be adjacent."""
    for entity, of_one in groupby(edits, key=lambda edit: edit.entity):
        yield entity, tuple(of_one)


def edits_report(
    command: str,
    origin: str,
    results: Sequence[EntityResult],
    notes: Sequence[str],
    unchanged: int = 0,
    undo: str = "",
) -> Report:
    """The report of edits that were made, or would be made.

    Args:
        command: name in the envelope.
        origin: name of the cluster, as printed.
        results: one per entity that changes or would change.
        notes: sentences that were printed before; JSON repeats them.
        unchanged: number of entities that already have the wanted values.
        undo: the line with the way back; empty for none.
    """
    rows = [_row(result, edit) for result in results for edit in result.edits]
    # The cluster's messages are below the table in full: a column would cut them.
    lines = [
        f"{result.entity}: {result.status.value}: {result.detail}" for result in results if result.detail
    ]
    footer = "\n".join(
        terminal_text(line) for line in [*lines, f"{_results_text(results, unchanged)} ({origin})"]
    )
    return Report(
        command, _COLUMNS, rows, _SHOWN, footer=footer, when_empty=footer, colour=_colour,
        envelope={"cluster": origin, "unchanged": unchanged, "notes": list(notes), "undo": undo or None},
    )  # fmt: skip


def _results_text(results: Sequence[EntityResult], unchanged: int) -> str:
    """`entities: 3 applied, 1 refused, 12 unchanged`, or `to be changed: 3 entities; values: 2 raised, 1 removed`."""
    if not results:
        return f"nothing to change: {unchanged:,} as wanted" if unchanged else "nothing to change"
    if results[0].status is Status.PLANNED:
        words = [_change(edit) for result in results for edit in result.edits]
        counts = [(words.count(word), word) for word in ("set", "raised", "lowered", "removed")]
        return f"to be changed: {entities_text(len(results))}; values: {_counts_text(counts)}"
    counts = [(sum(result.status is status for result in results), status.value) for status in Status]
    return f"entities: {_counts_text([*counts, (unchanged, 'unchanged')])}"


def _counts_text(counts: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{count:,} {word}" for count, word in counts if count)


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


_SHOWN = (
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=20),
    Shown("key", lambda row: row["key"], is_text=True, keep=18),
    Shown("before", lambda row: exact_text(row["before"])),
    Shown("after", lambda row: exact_text(row["after"])),
    Shown("change", lambda row: row["change"], is_text=True, keep=7, rank=2),
    Shown("status", lambda row: row["status"], is_text=True, keep=16),
)


def exact_text(value: float | None) -> str:
    """A value in Kafka's unit with every digit: a person who agrees to an edit must not see 1,000,001 as 1.0 MB/s."""
    if value is None:
        return "-"
    return f"{int(value):,}" if value == value // 1 and abs(value) < _MOST_EXACT else repr(value)


def _change(edit: QuotaEdit) -> str:
    """The kind of an edit. A removed quota falls back to the next level, which may be higher or lower."""
    if edit.after is None:
        return "removed"
    if edit.before is None:
        return "set"
    return "raised" if edit.after > edit.before else "lowered"


def entities_text(count: int) -> str:
    """`1 entity`, `2,000 entities`."""
    return f"{count:,} {'entity' if count == 1 else 'entities'}"


def _colour(row: Row) -> Colour | None:
    if row["status"] in (Status.REFUSED.value, Status.FAILED.value, Status.NOT_TRIED.value):
        return Colour.RED
    return Colour.YELLOW if row["change"] == "removed" else None
