"""Which quotas govern a user with a client id at a time, and sentences about the answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
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
from kquota_spark.formats.text.escape import cut, entity_text, terminal_text
from kquota_spark.formats.text.person_units import (
    clock_time,
    iso_time,
    person_bytes,
    person_ms,
    person_rate,
    person_span,
)
from kquota_spark.model.govern.govern import Governed, Governor, RuleGovernor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.measure.throttle_time import java_round
from kquota_spark.model.measure.worked_example import MS_PER_PERCENT, Example, Moment
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL, Standing, Step
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.quotas.sources import QuotaHistory

ANONYMOUS = "ANONYMOUS"
"""The broker's name for a client that has not logged in."""

NO_CLIENT_ID = "no client id given: shown for an empty one"
_NAME_COLUMNS = 40
_MOST_PROBLEMS = 3
_DAY_MS = 86_400_000
_TEMPLATES = {
    2: "client id of this user",
    4: "user with this client id",
    5: "pair of user and client id",
    6: "user",
    8: "client id",
}
"""What has a bucket of its own below a default, by level."""
_MUTATION_WINDOWS = 11


def add_question_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the client, the time, and the source of the quotas."""
    parser.add_argument(
        "--user", metavar="NAME", help=f"principal without its type; {ANONYMOUS} if left out: not logged in"
    )
    parser.add_argument(
        "--client-id", metavar="ID", help="client id as sent; left out or '': the client sends none"
    )
    add_time_option(
        parser, "--at", about="as of then: an ISO time in UTC, epoch milliseconds, or 10m ago (default now)"
    )
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
class ClientQuotas:
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
def asked(options: argparse.Namespace) -> Iterator[ClientQuotas]:
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
        yield ClientQuotas(
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


def identity_notes(question: ClientQuotas) -> list[str]:
    """Notes on the question itself: its names, its time, and its source."""
    notes = []
    if question.is_anonymous:
        notes.append(f"no --user: {ANONYMOUS}, as brokers call clients that have not logged in")
    elif question.user.startswith("User:"):
        name = shown_name(question.user.removeprefix("User:"))
        notes.append(f"quotas have names without the principal's type: did you mean --user {name}?")
    if question.has_no_client_id:
        notes.append(NO_CLIENT_ID)
    known_through_ms = question.history.known_through_ms
    if known_through_ms is not None and known_through_ms < question.at_ms:
        notes.append(f"edits after {utc_text(known_through_ms)} are not known to this source")
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


def who_text(question: ClientQuotas) -> str:
    """`user alice, client id etl`."""
    return f"user {shown_name(question.user)}, client id {shown_name(question.client_id)}"


def as_of_text(question: ClientQuotas, time_text: Callable[[int], str]) -> str:
    """`as of 2026-11-21 05:41:00 UTC, by file quotas.yaml`."""
    # If no time was named, its milliseconds are of no use.
    return f"as of {time_text(question.at_ms // 1_000 * 1_000)}, by {terminal_text(question.history.origin)}"


def limit_text(quota_type: QuotaType, limit: float | None) -> str:
    """`300 kB/s`, `25.5 %`, `5/s`, or `unlimited`."""
    if limit is None:
        return "unlimited"
    if quota_type in BANDWIDTH:
        return person_rate(limit)
    return f"{limit:,.12g} %" if quota_type is QuotaType.REQUEST else f"{limit:,.12g}/s"


def bucket_words(question: ClientQuotas, answer: Answer) -> str:
    """The clients that share the bucket, and where the bucket is."""
    bucket = answer.governed.bucket
    user, client_id = shown_name(bucket.user), shown_name(bucket.client_id)
    if question.has_callback:
        tags = ", ".join(f"{shown_name(name)}={shown_name(value)}" for name, value in bucket.custom_tags)
        who = f"all requests with the tags {tags}" if tags else "all requests without a tag"
    elif bucket.user and bucket.client_id:
        who = f"user {user} with client id {client_id}"
    elif bucket.user and answer.limit is None:
        who = f"user {user} when it sends no client id"
    elif bucket.user:
        who = f"every client id of user {user} that no more specific rule takes out"
    elif bucket.client_id:
        who = f"client id {client_id}, whoever the user is"
    else:
        who = "every client that sends no client id, whoever the user is"
    if answer.quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"{who}; one bucket, at the active controller"
    return f"{who}; each broker has such a bucket of its own"


def limit_words(answer: Answer) -> str:
    """The limit with all its digits, and the rule that sets it."""
    limit, quota_type = answer.limit, answer.quota_type
    if limit is None:
        return "none: unlimited"
    exact = {
        QuotaType.REQUEST: f"{limit * MS_PER_PERCENT:,.12g} ms of handler threads in each second, on each broker",
        QuotaType.CONTROLLER_MUTATION: "partitions created or deleted, at the active controller",
    }.get(quota_type, f"{limit:,.12g} bytes per second on each broker")
    return f"{limit_text(quota_type, limit)}: {exact}; set by {terminal_text(answer.governed.rule or '')}"


def validity_words(question: ClientQuotas, answer: Answer) -> str:
    """The period in which this limit governs; empty if it always does, as far as is known."""
    governor, governing = question.governor, answer.governed.governing
    from_ms, to_ms = governing.valid_from_ms, governing.valid_to_ms
    if isinstance(governor, RuleGovernor):
        from_ms, to_ms = governor.period_of(
            answer.governed, answer.quota_type, question.user, question.client_id
        )
    parts = []
    if from_ms:
        parts.append(f"since {_time_words(question, from_ms)}")
    if to_ms is not None:
        parts.append(f"until {_time_words(question, to_ms)}")
    return ", ".join(parts)


def _time_words(question: ClientQuotas, time_ms: int) -> str:
    """`14:55:03 UTC`; with the day if it is another one than that of the question."""
    is_same_day = time_ms // _DAY_MS == question.at_ms // _DAY_MS
    return f"{clock_time(time_ms, with_day=False)} UTC" if is_same_day else utc_text(time_ms)


def measure_words(quota_type: QuotaType, limit: float, config: RateConfig) -> str:
    """How the broker measures this quota type."""
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        capacity = _MUTATION_WINDOWS * limit
        return (
            f"a token bucket of {_MUTATION_WINDOWS} s x {limit:,.12g}/s = {capacity:,.12g} mutations (with the "
            f"default controller.quota.window.*), refilled by {limit:,.12g}/s; below zero, requests wait for "
            "what is missing / limit"
        )
    slots = config.num_samples + (config.variant is RingVariant.FROM_3_8)
    shortest_ms, longest_ms = (config.num_samples - 1) * config.window_ms, slots * config.window_ms
    cap = f", at most {person_span(config.window_ms)}" if quota_type is QuotaType.REQUEST else ""
    return (
        f"{config.num_samples} samples of {_seconds(config.window_ms)} s: a window of {_seconds(shortest_ms)} to "
        f"{_seconds(longest_ms)} s (brokers {config.variant.value}); throttle = sum / limit - window{cap}"
    )


def example_lines(quota_type: QuotaType, example: Example, config: RateConfig) -> Iterator[str]:
    """Lines of the example: a burst with its arithmetic."""
    idle = _seconds(config.num_samples * config.window_ms)
    yield f"after {idle} s without traffic {_amount(quota_type, example.free)} may come at once"
    burst = example.burst
    yield (
        f"{_amount(quota_type, burst.total)} at once: rate {burst.total:,} / {person_span(burst.window_ms)} = "
        f"{_rate(quota_type, burst.rate_per_s)}, limit {_rate(quota_type, example.limit_per_s)}"
    )
    yield f"throttle {_throttle(example, burst)}"
    after = example.after
    yield (
        f"{after.time_ms / 1_000:g} s later the burst is still in the window: one more request is throttled "
        f"by {person_ms(after.throttle_ms)} again"
        if after.throttle_ms
        else f"{after.time_ms / 1_000:g} s later the burst no longer matters"
    )


def notes(answer: Answer, example: Example | None) -> Iterator[str]:
    """Notes that an operator needs about this answer."""
    limit, governed = answer.limit, answer.governed
    if limit is None:
        yield "nothing limits this client; brokers that measure this type record it in the bucket above"
        if answer.walk and not governed.bucket.user:
            # Shortcuts of `quotaTypesEnabled`: which quotas a broker has seen since its start is unknown here.
            yield "a broker that has only seen quotas of users records it by user; of pairs alone, by the pair"
    elif not limit > 0:
        yield _odd_limit_note(answer.quota_type, limit)
    if limit is not None and governed.level in _TEMPLATES:
        yield f"a default: each other {_TEMPLATES[governed.level]} has this limit too, in a bucket of its own"
    if limit is not None and governed.level in (*CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL):
        yield "all users with this client id share the bucket: one of them can throttle the others"
    if example is not None and example.steady is not None and answer.quota_type in BANDWIDTH:
        steady = example.steady
        yield (
            f"exactly the limit, once per sample, is throttled too: by {person_ms(steady.throttle_ms)} each from "
            f"{steady.time_ms / 1_000:g} s on"
        )
    if answer.quota_type in BANDWIDTH and governed.governing.has_request_quota:
        yield "a request quota governs this client too: the broker throttles by the larger of the two"


def _odd_limit_note(quota_type: QuotaType, limit: float) -> str:
    """A note on a limit that only ZooKeeper lets an operator set: 0, negative, or NaN."""
    if quota_type is QuotaType.REQUEST and limit == 0:
        return "a limit of 0 throttles every request by one whole sample, the most that this quota may"
    if quota_type is QuotaType.CONTROLLER_MUTATION and limit <= 0:
        return (
            f"a limit of {limit:g} never refills the bucket: below zero, mutations are refused for ever (not those of "
            "clients before 2.7)"
        )
    return f"a limit of {limit:g} throttles nobody: the broker's throttle time does not come out above zero"


def hole_note(answer: Answer) -> Iterator[str]:
    """`hole_notes` in one sentence, below a walk that shows these quotas."""
    count = sum(step.standing is Standing.NOT_REACHED for step in answer.walk)
    if count:
        yield f"defaults of client ids do not reach an empty client id (KAFKA-13341): {count} above"


def hole_notes(answer: Answer) -> Iterator[str]:
    """Quotas that seem to apply but never reach an empty client id (KAFKA-13341)."""
    for step in answer.walk:
        if step.standing is Standing.NOT_REACHED:
            yield (
                f"{answer.quota_type.value}: {shown_name(entity_text(str(step.entity)))}, "
                f"{limit_text(answer.quota_type, step.limit)}, does not reach an empty client id (KAFKA-13341)"
            )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1_000:g}"


def _amount(quota_type: QuotaType, amount: int) -> str:
    if quota_type is QuotaType.REQUEST:
        return f"{amount:,} ms of handler time"
    return f"{person_bytes(amount)} ({amount:,} bytes)"


def _rate(quota_type: QuotaType, amount_per_s: float) -> str:
    return limit_text(quota_type, amount_per_s / (MS_PER_PERCENT if quota_type is QuotaType.REQUEST else 1))


def _throttle(example: Example, moment: Moment) -> str:
    """`4,500,000 / 300,000 - 10 s = 5.00 s`; for a capped throttle also the applied value."""
    raw_ms = java_round(moment.total / example.limit_per_s * 1_000 - moment.window_ms)
    window = person_span(moment.window_ms)
    formula = f"{moment.total:,} / {example.limit_per_s:,.12g} - {window} = {person_ms(raw_ms)}"
    return formula if raw_ms == moment.throttle_ms else f"{formula}, applied {person_ms(moment.throttle_ms)}"
