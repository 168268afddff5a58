"""`kquota drift`: whether a cluster still has the quotas of a file; if not, since when, and who edited it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options
from kquota_spark.cli.exit_codes import DONE, ERROR, FOUND
from kquota_spark.cli.options import Since, more_of
from kquota_spark.cli.question import Asked, Found, Question
from kquota_spark.cli.quotas.diff import add_tables_options
from kquota_spark.cli.quotas.quota_edits import exact_text
from kquota_spark.cli.quotas.quota_sides import chosen_side, named_side
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.enforce.ports import Image
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import clock_time, counted, iso_time, type_text
from kquota_spark.model.compare.drift import Drift, Editor
from kquota_spark.model.compare.quota_diff import text_edits
from kquota_spark.model.compare.quota_tree import quota_type_of
from kquota_spark.model.quotas.rules import BEGINNING_MS, QuotaChange
from kquota_spark.process.clock import now_ms
from kquota_spark.reports.clients.quota_drift import DriftFound, drift_of

COMMANDS = {
    "drift": (
        "quotas",
        "whether a cluster is still what a file declares; if not, since when, and who edited it",
        "kquota drift quotas.yaml --context prod",
    ),
}
CODES = {
    "drift": {
        DONE: "as declared",
        ERROR: "an error, a usage error, or the tables do not know the quotas of now",
        FOUND: "drift",
    },
}

_COLUMNS = (
    "entity", "key", "declared", "now", "since", "since_before", "edited_at", "edited_before", "version", "by",
    "client_id", "policy",
)  # fmt: skip
_LEGEND = (
    "times in UTC, < by then at the latest; since -: it never was as declared, as far as is known; by -: neither "
    "the request log nor the enforcement's log has it, e.g. set straight in ZooKeeper"
)
_TIMES = frozenset({"since", "since_before", "edited_at", "edited_before"})
_WITHOUT_HISTORY = "since when, and who: not recorded (kquota watch writes quota_changes)"


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="what is declared: a file of quotas in any format, - for standard input"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing, for cron and CI: see the exit code"
    )
    add_cluster_options(parser)
    add_tables_options(parser)


class _Own(NamedTuple):
    """Options that no other command has."""

    declared: Image
    there: Image
    at: Since | None
    is_quiet: bool


def _own(options: argparse.Namespace) -> _Own:
    return _Own(named_side(options.file), chosen_side(options), options.at, options.quiet)


def _find(asked: Asked) -> Found:
    """The drift. The exit code is `ERROR` if the tables do not know the quotas of that time, else that of the drift."""
    declared, there, at, is_quiet = asked.own
    edits = text_edits(declared.quotas, there.quotas)
    code = FOUND if edits else DONE
    warning = ""
    if there.is_stale:
        code, warning = ERROR, _stale_text(there, at)
    if is_quiet:
        return Found(_COLUMNS, (), code=code, warning=warning, is_silent=True)
    found = drift_of(asked.settings, edits, now_ms() if at is None else at.time_ms)
    rows = [_row(drift) for drift in found.drifts]
    return Found(
        _COLUMNS,
        rows,
        _shown(rows),
        notes=list(_notes(declared, there, found, asked.limit)),
        times=_TIMES,
        envelope={
            "declared": declared.origin,
            "cluster": there.origin,
            "known_through": None if there.known_through_ms is None else iso_time(there.known_through_ms),
            "has_history": found.has_history,
        },
        code=code,
        warning=warning,
    )


def _stale_text(there: Image, at: Since | None) -> str:
    """Why the quotas count as not known: a script that checks only the exit code must not rely on old ones."""
    known_ms = there.known_through_ms or BEGINNING_MS
    through = f"only through {iso_time(known_ms)}" if known_ms > BEGINNING_MS else "through no time at all"
    of = "now" if at is None else iso_time(at.time_ms)
    return (
        f"the quotas of {of} are not known: {there.origin} has them {through}: keep kquota watch or the audit running, "
        "or name a running cluster, or an earlier --at"
    )


def _row(drift: Drift) -> Row:
    editor = drift.editor
    return {
        "entity": str(drift.edit.entity),
        "key": drift.edit.key.value,
        "declared": drift.edit.before,
        "now": drift.edit.after,
        **_times("since", "since_before", drift.since),
        **_times("edited_at", "edited_before", drift.last),
        "version": None if drift.last is None else drift.last.version,
        "by": None if editor is None else editor.name,
        "client_id": None if editor is None else editor.client_id,
        "policy": None if editor is None else editor.policy,
        "drift": drift,
    }


def _times(at: str, before: str, change: QuotaChange | None) -> dict[str, int | None]:
    """The times of an edit. A polled edit has no exact time, only the last poll without it and the first with it."""
    if change is None:
        return {at: None, before: None}
    return {at: change.changed_at_ms or None, before: change.changed_before_ms}


def _shown(rows: Sequence[Row]) -> tuple[Shown, ...]:
    last = Shown("last edit", lambda row: _time(row["edited_at"], row["edited_before"]), rank=6)
    return (
        Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=16),
        Shown("type", lambda row: type_text(quota_type_of(row["drift"].edit.key)), is_text=True, keep=8),
        Shown("declared", lambda row: exact_text(row["declared"])),
        Shown("now", lambda row: exact_text(row["now"])),
        Shown("since", lambda row: _time(row["since"], row["since_before"]), rank=5),
        *((last,) if any(row["edited_at"] != row["since"] for row in rows) else ()),
        Shown("by", lambda row: _by(row["drift"].editor), is_text=True, keep=10),
    )


def _time(at_ms: int | None, before_ms: int | None) -> str:
    if before_ms is not None:
        return f"<{clock_time(before_ms, with_day=True)}"
    return "-" if at_ms is None else clock_time(at_ms, with_day=True)


def _by(editor: Editor | None) -> str:
    if editor is None:
        return "-"
    if editor.policy is not None:
        return f"{editor.name}, policy {editor.policy}"
    return f"{editor.name}, client {editor.client_id}" if editor.client_id else editor.name


def _notes(declared: Image, there: Image, found: DriftFound, limit: int | None) -> Iterator[str]:
    if there.known_through_ms is not None:
        yield f"edits after {iso_time(there.known_through_ms)} are not known"
    names = f"{terminal_text(there.origin)}, declared by {terminal_text(declared.origin)}"
    if not found.drifts:
        yield f"no drift: {names}"
        return
    count = len(found.drifts)
    yield f"{counted(count, 'value')} not as declared{more_of(count, limit)}: {names}"
    yield _LEGEND if found.has_history else _WITHOUT_HISTORY


QUESTION = Question(
    command="drift",
    table=None,
    find=_find,
    options=None,
    own=_own,
    period=None,
    has_agreement=False,
    place=_place,
    colour=lambda _: Colour.YELLOW,
)
add_commands = QUESTION.add_to
