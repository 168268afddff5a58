"""The review as one comment in Markdown of GitHub, for people who decide about a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kquota_spark.findings.idle_rules import Mangled
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    iso_time,
    person_bytes,
    person_ms,
    quota_texts,
    rate_text,
    type_text,
)
from kquota_spark.model.compare.quota_diff import EffectChange
from kquota_spark.model.compare.quota_tree import quota_type_of
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaKey
from kquota_spark.reports.review.code_spans import Names, code_span, names_of
from kquota_spark.reports.review.review import (
    Affected,
    Limits,
    Oversubscription,
    Replayed,
    Review,
    Side,
    SuspiciousName,
    Waiting,
    is_lower,
)
from kquota_spark.reports.review.verdict import more_delay_ms
from kquota_spark.reports.review.wording import REVIEW, Wording

T = TypeVar("T")
MOST_BYTES = 60_000
"""Maximum bytes of a comment: GitHub refuses one of more than 65,536 characters."""
_ROWS = (50, 25, 12, 6, 3)
"""Maximum rows of a table; fewer until the comment fits."""
_MOST_LIMITS, _MOST_BUCKETS, _MOST_IN_SENTENCE = 2, 2, 3
_MOST_PROBLEM = 200
"""Maximum characters of the place and the problem of a node."""


def comment_of(review: Review | None, code: int, wording: Wording = REVIEW) -> str:
    """The comment; empty without a change.

    Args:
        review: None if there is no change.
        code: exit code of the command, which is the verdict.
        wording: the texts of the command.
    """
    if review is None:
        return ""
    texts = ("\n".join(_Comment(review, code, rows, wording).lines()) + "\n" for rows in _ROWS)
    return next(text for text in texts if len(text.encode()) <= MOST_BYTES)


class _Comment:
    """One comment, with so many rows per table."""

    def __init__(self, review: Review, code: int, rows: int, wording: Wording) -> None:
        self._review, self._code, self._rows, self._wording = review, code, rows, wording
        # Only names that a table shows are cut, because thousands of long ones would take minutes.
        entities = [one.entity for one in review.edits[:rows]]
        entities += [one.entity for one in review.names[:rows]]
        for one in review.mangled[:rows]:
            entities += (one.meant, one.stands)
        names = names_of(entities)
        for group in review.affected[:rows]:
            for bucket in group.buckets[:_MOST_BUCKETS]:
                names += (
                    bucket.user,
                    bucket.client_id,
                    *(f"{tag}={value}" for tag, value in bucket.custom_tags),
                )
        self._possible = sorted(review.possible, key=_is_higher)
        for change in self._possible[:rows]:
            names += filter(None, change.identity)
        self._names = Names(names)

    def lines(self) -> Iterator[str]:
        review = self._review
        yield f"### {self._wording.titles[self._code]}"
        yield from self._sides()
        yield from ("", f"**{_clients_text(review, self._wording)} {_delay_text(review)}".rstrip() + "**")
        if review.affected:
            yield from ("", f"Most harm first: {self._who()}.")
        if review.reasons:
            yield ""
            yield from (f"- {reason.text[0].upper()}{reason.text[1:]}." for reason in review.reasons)
        yield from self._affected()
        yield from self._edits()
        yield from self._capacity()
        yield from self._suspicious()
        yield from self._unseen()
        yield from self._unread()
        if review.not_judged:
            yield from ("", "#### Not known", "")
            yield from (f"- {text}" for text in review.not_judged)
        yield from ("", f"<sub>{_period_text(review)} {self._wording.note}</sub>")

    def _sides(self) -> Iterator[str]:
        """A table of what was compared."""
        if self._review.sides is None:
            return
        before, after = self._review.sides
        yield from ("", "| | before | after |", "| --- | --- | --- |")
        yield f"| quotas | {code_span(terminal_text(before.origin))} | {code_span(terminal_text(after.origin))} |"
        yield f"| rules | {before.rules:,} | {after.rules:,} |"
        if before.rings:
            yield f"| sample ring | {_rings_text(before)} | {_rings_text(after)} |"

    def _who(self) -> str:
        """The first clients of the table, which are those with most harm."""
        shown = [
            f"{self._names.bucket(one.buckets[0])}: {_direction(one)}"
            for one in self._review.affected[:_MOST_IN_SENTENCE]
        ]
        more = len(self._review.affected) - len(shown)
        return "; ".join(shown) + (f"; and {more:,} more, see below" if more else "")

    def _table(
        self,
        title: str,
        heads: Sequence[str],
        items: Sequence[T],
        row: Callable[[T], Sequence[str]],
        left: int,
    ) -> Iterator[str]:
        """A table with a row per item; the first `left` columns are texts, the others numbers."""
        if not items:
            return
        yield from ("", f"#### {title}", "")
        yield f"| {' | '.join(heads)} |"
        yield f"| {' | '.join('---' if place < left else '---:' for place in range(len(heads)))} |"
        for item in items[: self._rows]:
            cells = row(item)
            yield f"| {' | '.join([*cells[:left], *map(_unbroken, cells[left:])])} |"
        if len(items) > self._rows:
            yield from (
                "",
                f"{len(items) - self._rows:,} more rows: `{self._wording.command} --output json` has all.",
            )

    def _affected(self) -> Iterator[str]:
        heads = ["clients", "type", "limit", "throttled requests"]
        if self._wording.is_open_loop:
            title, more = "Differences by effect", ["other verdict", "total delay", "if clients wait"]
        else:
            title, more = "Clients with another limit", ["total delay", "bound", "deferred", "open loop"]
        yield from self._table(title, [*heads, *more, "used"], self._review.affected, self._group, 2)
        for why in dict.fromkeys(one.why for one in self._review.affected if one.why):
            yield from ("", f"?: {why}.")

    def _group(self, one: Affected) -> list[str]:
        shown = [self._names.bucket(each) for each in one.buckets[:_MOST_BUCKETS]]
        more = len(one.buckets) - _MOST_BUCKETS
        who = "<br>".join(shown) + (f"<br>and {more:,} more" if more > 0 else "")
        if len(one.clients) > max(1, len(one.buckets)):
            who += f" ({len(one.clients):,} clients)"
        limits = [_limits(one.quota_type, each) for each in one.limits[:_MOST_LIMITS]]
        if len(one.limits) > _MOST_LIMITS:
            limits.append(f"and {len(one.limits) - _MOST_LIMITS:,} more")
        if one.is_shared_anew:
            limits.append("shared anew")
        replay = one.replay
        if self._wording.is_open_loop:
            figures = ["?", "?", "?", ""] if replay is None else _open_figures(replay)
        else:
            figures = ["?", "?", "", "", "?"] if replay is None else _figures(replay)
        return [
            who,
            type_text(one.quota_type),
            "<br>".join(limits),
            *figures,
            amount_text(one.quota_type, one.amount),
        ]

    def _edits(self) -> Iterator[str]:
        heads = ("rule", "key", "before", "after")
        yield from self._table(self._wording.edits, heads, self._review.edits, self._edit, 2)

    def _edit(self, one: QuotaEdit) -> list[str]:
        return [self._names.entity(one.entity), f"`{one.key.value}`", *_values(one)]

    def _capacity(self) -> Iterator[str]:
        heads = ("key", "sum before", "sum after", "capacity", "clients without a limit")
        title = "Sum of the limits on one broker"
        yield from self._table(title, heads, self._review.capacity, _capacity_row, 1)

    def _suspicious(self) -> Iterator[str]:
        names: list[Mangled | SuspiciousName] = [*self._review.mangled, *self._review.names]
        yield from self._table("Names to check", ("rule", "why"), names, self._name, 2)

    def _name(self, one: Mangled | SuspiciousName) -> list[str]:
        if isinstance(one, Mangled):
            return [self._names.entity(one.stands), f"{self._names.entity(one.meant)}: {one.why}"]
        return [self._names.entity(one.entity), one.why]

    def _unseen(self) -> Iterator[str]:
        heads = ("clients", "type", "limit")
        yield from self._table("Clients without recorded traffic", heads, self._possible, self._one_unseen, 2)

    def _unread(self) -> Iterator[str]:
        found = [
            (side, problem)
            for side, one in zip(("before", "after"), self._review.sides or (), strict=False)
            for problem in one.problems
        ]
        title = "Content that brokers do not read as quotas"
        yield from self._table(title, ("side", "place"), found, _unread_row, 2)

    def _one_unseen(self, one: EffectChange) -> list[str]:
        limits = one.before.limit, one.after.limit
        return [self._identity(one), type_text(one.quota_type), _limits(one.quota_type, limits)]

    def _identity(self, change: EffectChange) -> str:
        user, client_id, ip = change.identity
        if _is_of_ips(change):
            return "any other ip" if ip is None else f"ip {self._names.code(ip)}"
        return self._names.client(user, client_id)


def _unread_row(item: tuple[str, str]) -> list[str]:
    side, problem = item
    return [side, code_span(terminal_text(problem[:_MOST_PROBLEM]))]


def _open_figures(replay: Replayed) -> list[str]:
    """Throttled requests, requests with another verdict, and total delay at the recorded times."""
    most = "≤ " if replay.is_at_most else ""
    return [
        _pair(replay.throttled_before, replay.throttled_after, lambda count: f"{count:,}", most),
        f"{replay.only_before + replay.only_after:,}",
        _pair(replay.delay_before_ms, replay.delay_after_ms, person_ms, most),
        "" if replay.beside is None else _waiting_text(replay.beside),
    ]


def _waiting_text(beside: Waiting) -> str:
    """The total delay in the closed loop, with its bound."""
    bound = _bound_text(beside)
    return person_ms(beside.delay_ms) + (f" ({bound})" if bound else "")


def _bound_text(closed: Waiting) -> str:
    """The bound of the total delay; empty if nothing is left open."""
    low, high = closed.low_ms, closed.high_ms
    if low == high:
        return ""
    return f"{person_ms(low)} or more" if high is None else f"{person_ms(low)} to {person_ms(high)}"


def _figures(replay: Replayed) -> list[str]:
    """Throttled requests and total delay in the closed loop, its bound, the deferred bytes, and the open loop."""
    closed = replay.closed or Waiting()
    least = "≥ " if closed.is_censored else ""
    after = f"{'≤ ' if replay.is_at_most else ''}{person_ms(replay.delay_after_ms)}"
    return [
        _pair(replay.throttled_before, closed.throttled_requests, lambda count: f"{count:,}", least),
        _pair(replay.delay_before_ms, closed.delay_ms, person_ms, least),
        _bound_text(closed),
        person_bytes(closed.deferred) if closed.deferred else "",
        after,
    ]


def _unbroken(cell: str) -> str:
    """Numbers that narrow columns do not part from their units; a pair breaks at its arrow."""
    return cell.replace(" ", "\u00a0").replace("\u00a0→\u00a0", " → ")


def _is_of_ips(change: EffectChange) -> bool:
    """Whether a change is of connections per ip."""
    return change.quota_type == CONNECTION


def _is_higher(change: EffectChange) -> bool:
    return not is_lower((change.before.limit, change.after.limit))


def _rings_text(side: Side) -> str:
    return ", ".join(map(code_span, side.rings))


def _clients_text(review: Review, wording: Wording) -> str:
    """How many clients get another limit, and how many of them a lower or shared one."""
    if review.period is None:
        if not review.edits:
            return "No rule differs, and there is no recorded traffic."
        return f"{_counted(len(review.edits), 'rule')} changed, and no recorded traffic shows the effect."
    clients: dict[tuple[str, str], bool] = {}
    for one in review.affected:
        for client in one.clients:
            clients[client] = clients.get(client, False) or not one.is_harmless
    seen, worse = _counted(review.period.clients, "client"), sum(clients.values())
    if not clients and review.affected:
        buckets = _counted(len(review.affected), "bucket")
        return f"{buckets} of the quota callback: another limit or verdict."
    if not clients:
        return f"None of {seen} with traffic {wording.nobody}."
    gets = "gets" if len(clients) == 1 else "get"
    if not any(one.is_moved for one in review.affected):
        return f"{len(clients):,} of {seen} {gets} another verdict under equal limits."
    ends = f"{worse:,} of them a lower or shared one." if worse else "none of them a lower one."
    return f"{len(clients):,} of {seen} {gets} another limit, {ends}"


def _delay_text(review: Review) -> str:
    """The total delay before and after; empty if nothing was replayed."""
    judged = [one.replay for one in review.affected if one.replay is not None]
    if not judged:
        return ""
    before_ms, open_ms = (
        sum(getattr(one, f"delay_{side}_ms") for one in judged) for side in ("before", "after")
    )
    after_ms = before_ms + sum(one.more_ms for one in judged)
    if before_ms == after_ms == open_ms == 0:
        return "Their recorded requests are throttled neither before nor after."
    more = more_delay_ms(review)
    grows = f", and {person_ms(more)} more for those that lose" if 0 != more != after_ms - before_ms else ""
    at_most = "at most " if any(one.is_at_most for one in judged) else ""
    if any(one.closed is None for one in judged):
        grows = grows.replace(", and ", f", and {at_most}")
        return f"Total delay: {person_ms(before_ms)} → {at_most}{person_ms(open_ms)}{grows}."
    return (
        f"Total delay: {person_ms(before_ms)} → {person_ms(after_ms)} if clients wait{grows} "
        f"({at_most}{person_ms(open_ms)} in the open loop)."
    )


def _direction(one: Affected) -> str:
    if not one.is_moved and one.replay is not None:
        return "more delay" if one.replay.more_ms > 0 else "less delay"
    return "lower" if one.is_lower else "shared anew" if one.is_shared_anew else "higher"


def _period_text(review: Review) -> str:
    if review.period is None:
        return ""
    return f"Recorded traffic of {iso_time(review.period.from_ms)} to {iso_time(review.period.to_ms)}."


def _limits(quota_type: str, limits: Limits) -> str:
    before, after = ("unlimited" if limit is None else rate_text(quota_type, limit) for limit in limits)
    if before == after and limits[0] != limits[1]:
        before, after = (f"{limit:,.17g}" for limit in limits if limit is not None)
    return before if before == after else f"{before} → {after}"


def _pair(before: int, after: int, text: Callable[[int], str], most: str = "") -> str:
    return text(before) if before == after else f"{text(before)} → {most}{text(after)}"


def _values(edit: QuotaEdit) -> list[str]:
    if isinstance(edit.key, QuotaKey):
        return quota_texts(edit.key, edit.before, edit.after)
    values = (edit.before, edit.after)
    return ["not set" if value is None else rate_text(quota_type_of(edit.key), value) for value in values]


def _capacity_row(one: Oversubscription) -> list[str]:
    kind = quota_type_of(one.key)
    sums = [
        f"{rate_text(kind, value)} ({100 * value / one.capacity:,.0f} %)" for value in (one.before, one.after)
    ]
    free = _pair(one.unlimited_before, one.unlimited_after, lambda count: f"{count:,}")
    return [f"`{one.key.value}`", *sums, rate_text(kind, one.capacity), free]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
