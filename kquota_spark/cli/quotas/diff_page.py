"""What `kquota diff` shows on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kquota_spark.cli.options.listing import counted, rule_text
from kquota_spark.cli.quotas.quota_edits import exact_text
from kquota_spark.cli.quotas.quota_sides import Side
from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.render import Report, Row, Shown, show
from kquota_spark.findings.mangled_names import Mangled
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import amount_text, iso_time, person_name, rate_text, type_text
from kquota_spark.model.compare.quota_diff import EffectChange, Governs, Identity
from kquota_spark.model.quotas.entities import IpEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.reports.clients.seen_clients import RecentUse

_LEGEND = (
    "(any): one that no rule names; rule: u/ user, c/ client id, * the default; limits hold per broker; "
    "bucket: where it changes, whether a user, a client id or a pair shares the limit"
)


class Found(NamedTuple):
    """What differs between two sides; by text or by effect only, the other is empty."""

    before: Side
    after: Side
    edits: Sequence[QuotaEdit]
    changes: Sequence[EffectChange]
    mangled: Sequence[Mangled]
    use: RecentUse


def print_diff(found: Found, limit: int | None, *, by: str) -> None:
    """Print the edits, then who gets something else, then what a migration has mangled."""
    page = Page()
    page.paragraph("before: ", terminal_text(found.before.origin), indent=8)
    page.paragraph("after:", terminal_text(found.after.origin), indent=8)
    for side in (found.before, found.after):
        if side.known_through_ms is not None:
            origin = terminal_text(side.origin)
            page.paragraph(
                "note:", f"edits after {iso_time(side.known_through_ms)} are not in {origin}", indent=8
            )
    if by != "effect":
        page.line()
        page.line(
            "no value differs" if not found.edits else f"{counted(len(found.edits), 'value')} differ",
            Tone.TITLE,
        )
        _show(edit_rows(found.edits), edit_columns(), limit)
    if by != "text":
        page.line()
        _print_effect(page, found, limit)
    for one in found.mangled:
        page.paragraph(
            "", terminal_text(f"mangled: {one.meant} became {one.stands}: {one.why}"), Tone.BAD, indent=0
        )


def _print_effect(page: Page, found: Found, limit: int | None) -> None:
    seen = sum(change.is_seen for change in found.changes)
    if found.use.to_ms is None:
        of_whom = "no use by clients is known: only what the names of rules make possible"
    else:
        clients = len({(one.user, one.client_id) for one in found.use.seen})
        of_whom = f"of {counted(clients, 'client')} seen in the day to {iso_time(found.use.to_ms)}"
    if not found.changes:
        page.paragraph("", f"nobody gets another limit or bucket ({of_whom})", Tone.TITLE, indent=0)
        return
    page.line("who gets another limit or bucket", Tone.TITLE)
    rows = [{"change": change} for change in found.changes]
    _show(rows, _change_columns(), limit)
    possible = len(found.changes) - seen
    told = f"{seen:,} seen and {possible:,} possible, {of_whom}"
    page.paragraph("", terminal_text(told), indent=0)
    page.paragraph("", _LEGEND, indent=0)


def _show(rows: Sequence[Row], shown: tuple[Shown, ...], limit: int | None) -> None:
    more = f"... and {len(rows) - limit:,} more: --limit 0 shows all" if limit and len(rows) > limit else ""
    show(Report("kquota diff", (), rows[:limit], shown, footer=more), "table")


def edit_rows(edits: Sequence[QuotaEdit]) -> list[Row]:
    """Edits as rows of `edit_columns`."""
    return [{"edit": edit} for edit in edits]


def edit_columns() -> tuple[Shown, ...]:
    """A value before and after, every digit."""
    return (
        Shown("entity", lambda row: str(row["edit"].entity), is_text=True, keep=24),
        Shown("key", lambda row: row["edit"].key.value, is_text=True, keep=20),
        Shown("before", lambda row: exact_text(row["edit"].before)),
        Shown("after", lambda row: exact_text(row["edit"].after)),
    )


def _change_columns() -> tuple[Shown, ...]:
    return (
        Shown("who", lambda row: _who(row["change"].identity), is_text=True, keep=16),
        Shown("type", lambda row: type_text(row["change"].quota_type), is_text=True, keep=8),
        Shown("before", lambda row: _limit(row["change"], row["change"].before)),
        Shown("after", lambda row: _limit(row["change"], row["change"].after)),
        Shown("rule", lambda row: _rules(row["change"]), is_text=True, keep=16, rank=6),
        Shown("bucket", lambda row: _buckets(row["change"]), is_text=True, keep=17, rank=4),
        Shown("used", lambda row: _used(row["change"]), rank=5),
    )


def _who(identity: Identity) -> str:
    if identity.user is None and identity.client_id is None:
        return f"ip {identity.ip}" if identity.ip is not None else "(any)"
    user, client_id = ("(any)" if name is None else person_name(name) for name in identity[:2])
    return f"{user} / {client_id}"


def _limit(change: EffectChange, governs: Governs) -> str:
    return rate_text(change.quota_type, governs.limit) if governs.limit is not None else "unlimited"


def _rule(governs: Governs) -> str:
    if isinstance(governs.rule, IpEntity):
        return str(governs.rule)
    return rule_text({"rule": None if governs.rule is None else str(governs.rule)})


def _rules(change: EffectChange) -> str:
    before, after = _rule(change.before), _rule(change.after)
    return before if before == after else f"{before} -> {after}"


def _buckets(change: EffectChange) -> str:
    if not change.is_other_bucket or change.before.bucket is None or change.after.bucket is None:
        return ""
    return f"{_bucket(change.before)} -> {_bucket(change.after)}"


def _bucket(governs: Governs) -> str:
    """Who shares the limit; the names are those of who it is about."""
    if governs.bucket is None:
        return "none"
    if governs.bucket.user and governs.bucket.client_id:
        return "pair"
    return "user" if governs.bucket.user else "client id"


def _used(change: EffectChange) -> str:
    return amount_text(change.quota_type, change.amount) if change.is_seen else "-"
