"""The question of `resolve` and `explain`: which quotas govern this user with this client id, at which time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.chosen.quota_source import (
    add_broker_options,
    add_source_options,
    governor_of,
    leader_notes,
    read_quotas,
    settings_with_broker_of,
    source_of,
)
from kquota_spark.cli.options import add_time_option, whole_number
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import cut, terminal_text
from kquota_spark.formats.text.person_units import iso_time, person_name, person_rate
from kquota_spark.model.govern.govern import Governed, Governor, RuleGovernor
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import Bucket, Step
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.quotas.sources import QuotaHistory

ANONYMOUS = "ANONYMOUS"
"""The broker's name for a client that has not logged in."""

UNITS = {
    QuotaType.PRODUCE: "bytes/s",
    QuotaType.FETCH: "bytes/s",
    QuotaType.REQUEST: "percent of a thread",
    QuotaType.CONTROLLER_MUTATION: "mutations/s",
}
_NAME_COLUMNS = 40
_MOST_PROBLEMS = 3


def add_question_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the client, the time, and the source of the quotas."""
    parser.add_argument(
        "--user", metavar="NAME", help=f"principal without its type; {ANONYMOUS} if left out: not logged in"
    )
    parser.add_argument(
        "--client-id", metavar="ID", help="client id as sent; left out or '': the client sends none"
    )
    as_of = "as of then: an ISO time in UTC, epoch milliseconds, or 10m ago (default now)"
    add_time_option(parser, "--at", about=as_of)
    parser.add_argument(
        "--broker", type=whole_number, default=1, metavar="ID", help="which one, if a callback asks (1)"
    )
    add_source_options(parser)
    add_broker_options(parser)


class Answer(NamedTuple):
    """What governs one quota type; the walk is empty if a callback decides instead."""

    quota_type: QuotaType
    governed: Governed
    walk: tuple[Step, ...]

    @property
    def limit(self) -> float | None:
        """In the unit of the type; None if nothing limits."""
        return self.governed.governing.limit_per_s


@dataclass(frozen=True, slots=True)
class Question:
    """The client, the time, and the quotas."""

    user: str
    client_id: str
    broker_id: int
    at_ms: int
    settings: Settings
    history: QuotaHistory
    governor: Governor
    is_anonymous: bool
    """No user was named."""
    has_no_client_id: bool
    """No client id was named, not even an empty one."""
    is_of_now: bool
    """No time was named."""

    @property
    def has_callback(self) -> bool:
        """Whether a callback decides instead of Kafka's own walk."""
        return not isinstance(self.governor, RuleGovernor)

    def answer(self, quota_type: QuotaType) -> Answer:
        """What governs this client for a quota type."""
        if isinstance(self.governor, RuleGovernor):
            governed, found = self.governor.explain(quota_type, self.user, self.client_id, self.at_ms)
            return Answer(quota_type, governed, found.walk)
        return Answer(quota_type, self.governed(quota_type, self.user, self.client_id), ())

    def governed(self, quota_type: QuotaType, user: str, client_id: str) -> Governed:
        """What governs another client at the same time."""
        principal = Principal("User", user)
        return self.governor.govern(self.broker_id, quota_type, principal, client_id, self.at_ms)

    def as_dict(self) -> dict[str, Any]:
        """The fields before the answers in the JSON form."""
        known_through_ms = self.history.known_through_ms
        return {
            "user": self.user,
            "client_id": self.client_id,
            "at": iso_time(self.at_ms),
            "source": self.history.origin,
            "known_through": None if known_through_ms is None else iso_time(known_through_ms),
            "callback": self.settings.quotas.callback or None,
            "broker_id": self.broker_id if self.has_callback else None,
            "notes": identity_notes(self),
        }


@contextmanager
def asked(options: argparse.Namespace) -> Iterator[Question]:
    """The question, with its quotas loaded.

    Raises:
        UserError: the source cannot be read, or does not have the quotas of that time.
    """
    from kquota_spark.quotas.sources import Client

    settings = settings_with_broker_of(options)
    user, client_id = options.user or ANONYMOUS, options.client_id or ""
    for option, name in (("--user", user), ("--client-id", client_id)):
        if any("\ud800" <= char <= "\udfff" for char in name):
            raise UserError(f"{option}: {name!r} is not UTF-8, as every name on the wire is")
    # A callback may query the quotas of any client.
    history = read_quotas(
        settings, source_of(options), None if settings.quotas.callback else Client(user, client_id)
    )
    if options.at is not None and not history.has_history:
        raise UserError(
            f"--at: {history.origin} has only the quotas of now: leave --at out, or use --tables or --quotas"
        )
    at_ms = now_ms() if options.at is None else options.at.time_ms
    with governor_of(settings, history) as governor:
        yield Question(
            user,
            client_id,
            options.broker,
            at_ms,
            settings,
            history,
            governor,
            is_anonymous=not options.user,
            has_no_client_id=options.client_id is None,
            is_of_now=options.at is None,
        )


def identity_notes(question: Question) -> list[str]:
    """Notes on the question itself: its names, its time, and its source."""
    notes = []
    if question.is_anonymous:
        notes.append(f"no --user: {ANONYMOUS}, as brokers call clients that have not logged in")
    elif question.user.startswith("User:"):
        name = shown_name(question.user.removeprefix("User:"))
        notes.append(f"quotas have names without the principal's type: did you mean --user {name}?")
    if question.has_no_client_id:
        notes.append("no --client-id: a client that sends none, or an empty one")
    known_through_ms = question.history.known_through_ms
    if known_through_ms is not None and known_through_ms < question.at_ms:
        notes.append(f"edits after {iso_time(known_through_ms)} are not known to this source")
    if question.has_callback:
        notes.append(
            f"the callback {terminal_text(question.settings.quotas.callback)} decides, asked as broker "
            f"{question.broker_id}: Kafka's own walk over the levels does not happen"
        )
        notes += leader_notes(question.history, question.at_ms)
    problems = question.history.problems
    notes += [f"not read as quotas: {terminal_text(problem)}" for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        notes.append(f"... and {len(problems) - _MOST_PROBLEMS} more that are not read as quotas")
    return notes


def shown_name(name: str) -> str:
    """A name for a sentence, shortened; an empty name as two quotes."""
    return cut(terminal_text(name), _NAME_COLUMNS) or '""'


def who_text(question: Question) -> str:
    """`user alice, client id etl`."""
    return f"user {shown_name(question.user)}, client id {shown_name(question.client_id)}"


def as_of_text(question: Question) -> str:
    """`as of 2026-11-21T05:41:00Z, by file quotas.yaml`."""
    # If no time was named, its milliseconds are of no use.
    return f"as of {iso_time(question.at_ms // 1_000 * 1_000)}, by {terminal_text(question.history.origin)}"


def limit_text(quota_type: QuotaType, limit: float | None) -> str:
    """`300 kB/s`, `25.5 %`, `5/s`, or `unlimited`."""
    if limit is None:
        return "unlimited"
    if quota_type in BANDWIDTH:
        return person_rate(limit)
    return f"{limit:,.12g} %" if quota_type is QuotaType.REQUEST else f"{limit:,.12g}/s"


def bucket_text(question: Question, bucket: Bucket) -> str:
    """The names of a bucket for a table: `alice / etl`, `user alice`, `client etl`, `group=pay`."""
    if question.has_callback:
        return ", ".join(f"{name}={value}" for name, value in bucket.custom_tags) or "no tags"
    if bucket.user and bucket.client_id:
        return f"{bucket.user} / {bucket.client_id}"
    return f"user {bucket.user}" if bucket.user else f"client {person_name(bucket.client_id)}"
