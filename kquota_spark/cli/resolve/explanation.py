"""Sentences that explain an answer: the bucket, the limit, an example with its arithmetic, and notes.

The amounts of the example are integers: bytes, or milliseconds of handler time (one percent is 10 ms per second). Its
bursts go through the same sample ring as in the broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from kquota_spark.cli.resolve.question import Answer, Question, limit_text, shown_name
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import iso_time, person_bytes, person_ms, person_span
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.measure.throttle_time import (
    bounded_throttle_time_ms,
    java_round,
    rate_per_s,
    throttle_time_ms,
)
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL, Standing

_TEMPLATES = {
    2: "the default is a template: each other client id of this user has a bucket and this limit of its own",
    4: "the default is a template: each other user with this client id has a bucket and this limit of its own",
    5: "the default is a template: each other pair of user and client id has a bucket and limit of its own",
    6: "the default is a template: each other user has a bucket and this limit of its own",
    8: "the default is a template: each other client id has a bucket and this limit of its own",
}
_MUTATION_WINDOWS = 11
_MS_PER_PERCENT = 10
"""Milliseconds of handler time per second in one percent of a thread."""
_BURST_PART = 1.5
_MOST_STEPS = 4


class Moment(NamedTuple):
    """The broker's measurement at one request: the sum of its window, the window's length, and the throttle."""

    time_ms: int
    total: int
    window_ms: int
    throttle_ms: int

    @property
    def rate_per_s(self) -> float:
        """Amount per second over the window."""
        return rate_per_s(self.total, self.window_ms)


class Example(NamedTuple):
    """A limit applied to a few requests."""

    limit_per_s: float
    """Amount per second."""
    free: int
    """Largest amount without a throttle in one request after idleness."""
    burst: Moment
    """One request of half as much again."""
    after: Moment
    """One more byte half a window length later: the burst is still in the window."""
    steady: Moment | None
    """The first throttled request of a client that sends exactly the limit, once per window; None if it never is."""


def worked_example(quota_type: QuotaType, limit: float, config: RateConfig) -> Example | None:
    """The example for a limit; None if the limit throttles nobody, or is not a rate over samples.

    Controller mutations have no example: a token bucket limits them.

    Args:
        quota_type: the type of the limit.
        limit: in the unit of the type.
        config: windows of the broker.
    """
    per_s = limit * _MS_PER_PERCENT if quota_type is QuotaType.REQUEST else limit
    if quota_type is QuotaType.CONTROLLER_MUTATION or not 0 < per_s < 2**62:
        return None
    cap_ms = config.window_ms if quota_type is QuotaType.REQUEST else None
    cold_ms = max((config.num_samples - 1) * config.window_ms, 1)
    ring = SampleRing(config)
    burst = _record(ring, math.ceil(per_s * cold_ms * _BURST_PART / 1_000), 0, per_s, cap_ms)
    after = _record(ring, 1, cold_ms // 2, per_s, cap_ms)
    free = math.floor(per_s * cold_ms / 1_000)
    return Example(per_s, free, burst, after, _first_throttle(per_s, config, cap_ms))


def _record(ring: SampleRing, amount: int, time_ms: int, per_s: float, cap_ms: int | None) -> Moment:
    window_ms = ring.record(amount, time_ms)
    if cap_ms is None:
        throttle_ms = throttle_time_ms(ring.total, window_ms, per_s)
    else:
        throttle_ms = bounded_throttle_time_ms(ring.total, window_ms, per_s, cap_ms)
    return Moment(time_ms, ring.total, window_ms, max(throttle_ms, 0))


def _first_throttle(per_s: float, config: RateConfig, cap_ms: int | None) -> Moment | None:
    ring = SampleRing(config)
    amount = math.ceil(per_s * config.window_ms / 1_000)
    for step in range(config.num_samples + _MOST_STEPS):
        moment = _record(ring, amount, step * config.window_ms, per_s, cap_ms)
        if moment.throttle_ms > 0:
            return moment
    return None


def bucket_words(question: Question, answer: Answer) -> str:
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
        QuotaType.REQUEST: f"{limit * _MS_PER_PERCENT:,.12g} ms of handler threads in each second, on each broker",
        QuotaType.CONTROLLER_MUTATION: "partitions created or deleted, at the active controller",
    }.get(quota_type, f"{limit:,.12g} bytes per second on each broker")
    return f"{limit_text(quota_type, limit)}: {exact}; set by {terminal_text(answer.governed.rule or '')}"


def validity_words(answer: Answer) -> str:
    """The time during which none of the candidate quotas changes; empty if they never change."""
    governing = answer.governed.governing
    parts = []
    if governing.valid_from_ms:
        parts.append(f"nothing that was looked at has changed since {iso_time(governing.valid_from_ms)}")
    if governing.valid_to_ms is not None:
        parts.append(f"the next change comes at {iso_time(governing.valid_to_ms)}")
    return "; ".join(parts)


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
    yield from hole_notes(answer)
    limit, governed = answer.limit, answer.governed
    if limit is None:
        yield "nothing limits this client; brokers that measure this type record it in the bucket above"
        if answer.walk and not governed.bucket.user:
            # Shortcuts of `quotaTypesEnabled`: which quotas a broker has seen since its start is unknown here.
            yield "a broker that has only seen quotas of users records it by user; of pairs alone, by the pair"
    elif not limit > 0:
        yield _odd_limit_note(answer.quota_type, limit)
    if limit is not None and governed.level in _TEMPLATES:
        yield _TEMPLATES[governed.level]
    if limit is not None and governed.level in (*CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL):
        yield "all users with this client id share the bucket: one of them can throttle the others"
    if example is not None and example.steady is not None and answer.quota_type in BANDWIDTH:
        steady = example.steady
        yield (
            f"exactly the limit is too much when it is sent once per sample: from {steady.time_ms / 1_000:g} s on "
            f"the rate is {steady.rate_per_s / example.limit_per_s:.3g} times the limit, and each request is "
            f"throttled by {person_ms(steady.throttle_ms)}"
        )
    if answer.quota_type in BANDWIDTH and governed.governing.has_request_quota:
        yield "a request_percentage holds for this client too: the broker throttles by the larger of the two"


def _odd_limit_note(quota_type: QuotaType, limit: float) -> str:
    """A note on a limit that only ZooKeeper lets an operator set: 0, negative, or NaN."""
    if quota_type is QuotaType.REQUEST and limit == 0:
        return "a limit of 0 throttles every request by one whole sample, the most that this quota may"
    if quota_type is QuotaType.CONTROLLER_MUTATION and limit <= 0:
        return (
            f"a limit of {limit:g} never fills the bucket again: once below zero it refuses CreateTopics (from "
            "version 6), DeleteTopics (5) and CreatePartitions (3) for ever; older versions are not throttled"
        )
    return f"a limit of {limit:g} throttles nobody: the broker's throttle time does not come out above zero"


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
    return limit_text(quota_type, amount_per_s / (_MS_PER_PERCENT if quota_type is QuotaType.REQUEST else 1))


def _throttle(example: Example, moment: Moment) -> str:
    """`4,500,000 / 300,000 - 10 s = 5.00 s`; for a capped throttle also the applied value."""
    raw_ms = java_round(moment.total / example.limit_per_s * 1_000 - moment.window_ms)
    window = person_span(moment.window_ms)
    formula = f"{moment.total:,} / {example.limit_per_s:,.12g} - {window} = {person_ms(raw_ms)}"
    return formula if raw_ms == moment.throttle_ms else f"{formula}, applied {person_ms(moment.throttle_ms)}"
