"""The reasons why a migration or an upgrade is not without effect, each from figures that the check shows.

A migration should change nothing. So each difference by effect needs a person, also a higher limit. Rules that differ
without an effect on any client do not.
"""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.reports.review.review import Reason, Review
from kquota_spark.reports.review.verdict import delay_reason, end_reason, unknown_reason


def migration_reasons(review: Review, harmless_ms: int) -> tuple[Reason, ...]:
    """The reasons, those to stop first; none if the check passes.

    Args:
        review: what differs.
        harmless_ms: increase of the total delay that needs no person.
    """
    return tuple(sorted(_reasons(review, harmless_ms), key=lambda reason: not reason.is_harm))


def _reasons(review: Review, harmless_ms: int) -> Iterator[Reason]:
    if review.mangled:
        names = _counted(len(review.mangled), "rule has a mangled name", "rules have mangled names")
        yield Reason(f"{names}, so the clients that were meant are not under them", is_harm=True)
    yield from delay_reason(review, harmless_ms)
    moved = [one for one in review.affected if one.is_moved]
    if moved:
        who = _counted(len({client for one in moved for client in one.clients}), "client gets", "clients get")
        yield Reason(f"{who} another limit or bucket" if moved[0].clients else "buckets get another limit")
    if review.possible:
        kinds = _counted(len(review.possible), "kind of clients", "kinds of clients")
        yield Reason(f"{kinds} without recorded traffic would get another limit or bucket")
    yield from end_reason(review)
    yield from unknown_reason(review)
    without = sum(max(1, len(one.clients)) for one in review.affected if one.replay is None)
    if without:
        yield Reason(f"{_counted(without, 'client', 'clients')} could not be replayed")
    if review.names:
        yield Reason("names that only one side has may not be meant as they are written")
    problems = sum(len(side.problems) for side in review.sides or ())
    if problems:
        nodes = _counted(problems, "place has", "places have")
        yield Reason(f"{nodes} content that brokers do not read as quotas")


def _counted(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
