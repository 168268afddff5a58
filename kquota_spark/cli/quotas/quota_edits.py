"""Edits of a cluster's quotas as a person meets them: shown, asked about, made, and what became of each.

`carry_out` is the whole way of `import` and `alter`, from the edits to the exit code; `kfk` asks nobody, and takes only
its last steps. In JSON, YAML and CSV standard output holds one answer only: the question and what it is about go to
standard error.
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

from kquota_spark.cli.exit_codes import DONE, ERROR, NOTHING, USAGE
from kquota_spark.cli.options import add_form_option
from kquota_spark.cli.text.page import Page, say
from kquota_spark.cli.text.render import Colour, Format, Report, Row, Shown, show, table_report
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.quotas.cluster_quotas import ClusterQuotas

_COLUMNS = ("entity", "key", "before", "after", "change", "status", "detail")
_PROGRESS_EVERY_S = 2.0
_MOST_NOTES = 10
_MOST_EXACT = 1e20
"""Beyond it, and beyond every long of Kafka's, the digits of a double are not those that anybody wrote."""


class Status(Enum):
    """What became of the edits of an entity; the value is what tables and JSON say."""

    PLANNED = "planned"
    APPLIED = "applied"
    ACCEPTED = "would be applied"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_TRIED = "not tried"

    @property
    def is_done(self) -> bool:
        """Nothing is left to do, or would be."""
        return self in (Status.APPLIED, Status.ACCEPTED)


@dataclass(frozen=True, slots=True)
class EntityResult:
    """What became of all edits of one entity, which stand or fall together; `detail` is the cluster's words."""

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
    unchanged: int,
    notes: Sequence[str],
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
    form, origin = choices.form, cluster.origin
    _print_notes(notes, form)
    if edits and not (choices.is_dry_run or choices.is_agreed):
        planned = [EntityResult(entity, of_one, Status.PLANNED) for entity, of_one in _by_entity(edits)]
        report = edits_report(command, origin, planned, notes)
        if form == "table" or not sys.stdin.isatty():
            show(report, form)
        else:
            say(table_report(report).rstrip("\n"), sys.stderr)
        if not _is_agreed(f"Change {entities_text(len(planned))} of {origin}?"):
            say("nothing was changed", sys.stderr)
            return NOTHING
    results = apply_edits(cluster, edits, validate_only=choices.is_dry_run)
    show(edits_report(command, origin, results, notes, unchanged), form)
    return exit_code(results)


def _print_notes(notes: Sequence[str], form: Format) -> None:
    page = Page(sys.stdout if form == "table" else sys.stderr)
    for note in notes[:_MOST_NOTES]:
        page.paragraph("", terminal_text(note), indent=0)
    if len(notes) > _MOST_NOTES:
        page.paragraph("", f"... and {len(notes) - _MOST_NOTES:,} more notes: --output json", indent=0)


def _is_agreed(question: str) -> bool:
    """Whether the person agrees; exits with 2, as for wrong usage, where there is nobody to ask."""
    if not sys.stdin.isatty():
        say("kquota: there is no terminal to ask on, and nothing was changed: --yes does it", sys.stderr)
        raise SystemExit(USAGE)
    sys.stdout.flush()
    sys.stderr.write(f"{terminal_text(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def apply_edits(
    cluster: ClusterQuotas, edits: Iterable[QuotaEdit], *, validate_only: bool = False
) -> list[EntityResult]:
    """Make edits in place, one request an entity; with `validate_only` only ask whether the cluster would take them.

    What the cluster refuses does not stop the others; only what would just remove is not tried once a value was
    refused, because it may be what limits meanwhile those whom the value is for. After no answer the rest is not
    tried: it would wait as long. Nor after Ctrl-C, which must not leave a person without knowing how far it came.
    """
    waiting = list(_by_entity(edits))
    done = Status.ACCEPTED if validate_only else Status.APPLIED
    results: list[EntityResult] = []
    told_s = time.monotonic()
    failed = has_refused_value = False
    for entity, of_one in waiting:
        has_value = any(edit.after is not None for edit in of_one)
        if failed or (has_refused_value and not has_value):
            results.append(EntityResult(entity, of_one, Status.NOT_TRIED))
            continue
        try:
            refusal = cluster.alter(
                entity, {edit.key: edit.after for edit in of_one}, validate_only=validate_only
            )
        except (UserError, KeyboardInterrupt) as error:
            unknown = "" if validate_only else f"; whether {entity} was altered is not known"
            words = str(error) or f"interrupted{unknown}"
            results.append(EntityResult(entity, of_one, Status.FAILED, words))
            failed = True
            continue
        has_refused_value |= has_value and refusal is not None
        status = done if refusal is None else Status.REFUSED
        results.append(EntityResult(entity, of_one, status, refusal or ""))
        if time.monotonic() - told_s > _PROGRESS_EVERY_S and sys.stderr.isatty():
            say(f"{len(results):,} of {len(waiting):,} entities", sys.stderr)
            told_s = time.monotonic()
    return results


def exit_code(results: Iterable[EntityResult]) -> int:
    """`DONE` if all is done, or would be; `ERROR` if an entity was refused or failed."""
    return DONE if all(result.status.is_done for result in results) else ERROR


def _by_entity(edits: Iterable[QuotaEdit]) -> Iterator[tuple[AnyEntity, tuple[QuotaEdit, ...]]]:
    """The edits of each entity, which stand together already."""
    for entity, of_one in groupby(edits, key=lambda edit: edit.entity):
        yield entity, tuple(of_one)


def edits_report(
    command: str, origin: str, results: Sequence[EntityResult], notes: Sequence[str], unchanged: int = 0
) -> Report:
    """The report of edits that were made, or would be made.

    Args:
        command: the heading of the report.
        origin: the cluster, as it is printed.
        results: one per entity that changes or would change.
        notes: lines that were printed before; JSON repeats them.
        unchanged: number of entities that have what is wanted already.
    """
    rows = [_row(result, edit) for result in results for edit in result.edits]
    # The cluster's words stand below the table, whole: in a column they would be cut.
    lines = [
        f"{result.entity}: {result.status.value}: {result.detail}" for result in results if result.detail
    ]
    footer = "\n".join(terminal_text(line) for line in [*lines, f"{_told(results, unchanged)} ({origin})"])
    return Report(
        command, _COLUMNS, rows, _SHOWN, footer=footer, when_empty=footer, colour=_colour,
        envelope={"cluster": origin, "unchanged": unchanged, "notes": list(notes)},
    )  # fmt: skip


def _told(results: Sequence[EntityResult], unchanged: int) -> str:
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


def entities_text(count: int) -> str:
    """`1 entity`, `2,000 entities`."""
    return f"{count:,} {'entity' if count == 1 else 'entities'}"


def _colour(row: Row) -> Colour | None:
    if row["status"] in (Status.REFUSED.value, Status.FAILED.value, Status.NOT_TRIED.value):
        return Colour.RED
    return Colour.YELLOW if row["change"] == "removed" else None
