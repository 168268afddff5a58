"""A cause in words: what happened, its part of the delay, and the usual cure.

Texts contain names as clients sent them; the code that prints a text escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kquota_spark.formats.text.person_units import (
    amount_text,
    bucket_text,
    clock_time,
    person_bytes,
    person_ms,
    rate_text,
)
from kquota_spark.model.attribution.causes import Part
from kquota_spark.model.attribution.detectors import UNDECIDED, Cause, Fact, Facts
from kquota_spark.model.attribution.sharing import OTHERS
from kquota_spark.reports.why.answers import Reasons

TITLES = {
    Cause.LIMIT_CUT: "limit cut",
    Cause.NEW_CLIENT: "new client",
    Cause.GROWTH: "growth",
    Cause.REPEATS: "repeats (likely)",
    Cause.BACKFILL: "old records read",
    Cause.BURST: "burst after idle",
    Cause.SMALL_REQUESTS: "many small requests",
    Cause.HOT_BROKER: "hot broker",
    Cause.SHARED_BUCKET: "shared bucket",
    Cause.STEADY: "steady at the limit",
}
CURES = {
    Cause.LIMIT_CUT: "raise the limit again, if the cut was not meant",
    Cause.NEW_CLIENT: "give the new client a quota of its own",
    Cause.GROWTH: "raise the limit, if the growth is meant to stay; else check the client",
    Cause.REPEATS: "longer delivery.timeout.ms and request.timeout.ms, so that waiting requests are not sent again",
    Cause.BACKFILL: "a quota of its own for the backfill, or a consumer that reads old records more slowly",
    Cause.BURST: "spread what need not be sent at once, or set a larger quota.window.num",
    Cause.SMALL_REQUESTS: "linger.ms and batch.size at the producer, fetch.min.bytes at the consumer",
    Cause.HOT_BROKER: "more partitions, or move leaders to other brokers: the limit holds on each broker",
    Cause.SHARED_BUCKET: "quotas of their own for the clients that share the bucket",
    Cause.STEADY: "raise the limit, or let the client send less",
}
"""What usually removes a cause; of one cause of a delay take `cure_of`."""

_Words = Callable[[Mapping[str, Any], str], str]


def _cut(facts: Mapping[str, Any], quota_type: str) -> str:
    before, after = (rate_text(quota_type, facts[f"limit_{name}_per_s"]) for name in ("before", "after"))
    if facts["limit_before_per_s"] is None:
        return f"a limit of {after} was set at {_time(facts['at_ms'])}, and before there was none"
    return f"the limit was cut from {before} to {after} at {_time(facts['at_ms'])}"


def _new(facts: Mapping[str, Any], _: str) -> str:
    seen = f"first seen at {_time(facts['first_seen_ms'])}"
    return (
        f"{_clients(facts)} {_were(facts)} new ({seen}), with {facts['amount_percent']:.0f} % of the amount"
    )


def _growth(facts: Mapping[str, Any], quota_type: str) -> str:
    now, usual = (rate_text(quota_type, _rate(facts[name], quota_type)) for name in
                  ("wanted_rate_per_s", "usual_rate_per_s"))  # fmt: skip
    since = "" if facts["since_ms"] is None else f", since {_time(facts['since_ms'])}"
    text = f"{_clients(facts)} wanted {facts['times']:.1f} times the usual rate"
    return f"{text}{since}: {now}, against {usual} in {facts['compared_with']}"


def _rate(amount_per_s: float, quota_type: str) -> float:
    """A rate in the unit of its limit: percent of a thread for microseconds per second."""
    return amount_per_s / 10_000 if quota_type == "request" else amount_per_s


def _repeats(facts: Mapping[str, Any], _: str) -> str:
    text = f"{facts['requests']:,} requests repeat one that was sent before on another connection"
    return f"{text}: {facts['amount_percent']:.0f} % of the amount, {facts['connections']:,} connections"


def _backfill(facts: Mapping[str, Any], _: str) -> str:
    start = (
        f"{facts['back_records']:,} records earlier than before" if facts["back_records"] else "after a pause"
    )
    text = f"{_clients(facts)} read old records from {_time(facts['at_ms'])}, beginning {start}"
    return f"{text}: up to {facts['lag_records']:,} records behind, {facts['amount_percent']:.0f} % of the amount"


def _burst(facts: Mapping[str, Any], quota_type: str) -> str:
    amount = amount_text(quota_type, facts["largest_amount"])
    count = "a burst" if facts["bursts"] == 1 else f"{facts['bursts']:,} bursts"
    largest = "" if facts["bursts"] == 1 else "the largest "
    text = f"{count} after a pause, {largest}{amount} at {_time(facts['largest_at_ms'])}"
    return f"{text}; the limit lets it through within {facts['over_s']} s"


def _small(facts: Mapping[str, Any], _: str) -> str:
    size, usual = (person_bytes(round(facts[name])) for name in ("request_bytes", "usual_request_bytes"))
    return (
        f"{_clients(facts)} sent about the usual bytes in {facts['requests']:,} requests of {size}, "
        f"against {usual} in {facts['compared_with']}"
    )


def _hot(facts: Mapping[str, Any], _: str) -> str:
    return (
        f"broker {facts['broker_id']} got {facts['amount_percent']:.0f} % of the traffic, "
        f"{facts['times_the_mean']:.1f} times the mean of {facts['brokers']:,} brokers"
    )


def _shared(facts: Mapping[str, Any], _: str) -> str:
    alone = facts["alone_ms"]
    rest = (
        "none of which would be throttled alone"
        if not alone
        else f"with {person_ms(alone)} of delay if each had its own"
    )
    return f"{facts['clients']:,} clients share the bucket, {rest}"


_WORDS: Mapping[Cause, _Words] = {
    Cause.LIMIT_CUT: _cut,
    Cause.NEW_CLIENT: _new,
    Cause.GROWTH: _growth,
    Cause.REPEATS: _repeats,
    Cause.BACKFILL: _backfill,
    Cause.BURST: _burst,
    Cause.SMALL_REQUESTS: _small,
    Cause.HOT_BROKER: _hot,
    Cause.SHARED_BUCKET: _shared,
}


def _time(time_ms: int) -> str:
    return clock_time(time_ms, with_day=True)


def _clients(facts: Facts) -> str:
    """The clients of a cause: the name of one, or their number."""
    count = facts["clients"]
    if count == 1:
        return bucket_text(str(facts["user"]), str(facts["client_id"]), None)
    return f"{count:,} clients"


def _were(facts: Facts) -> str:
    return "is" if facts["clients"] == 1 else "are"


def _is_first_limit(part: Part) -> bool:
    """Whether the cause is a limit where none was before."""
    return part.cause is Cause.LIMIT_CUT and part.facts["limit_before_per_s"] is None


def title_of(part: Part) -> str:
    """The name of a cause in a few words."""
    if part.is_undecided:
        return f"burst or {TITLES[part.cause]}"
    return "limit set" if _is_first_limit(part) else TITLES[part.cause]


def cure_of(part: Part) -> str:
    """What usually removes a cause."""
    if _is_first_limit(part):
        return "raise the limit or remove it, if it was not meant"
    if part.is_undecided:
        return "ask again when it is known: a burst has another cure than growth"
    return CURES[part.cause]


def main_cure(found: Reasons) -> str:
    """The usual cure of the main cause."""
    named = found.attribution.named
    return cure_of(named[0]) if named else CURES[Cause.STEADY]


def evidence_text(part: Part, quota_type: str) -> str:
    """What shows a cause, in one sentence.

    Args:
        part: the cause.
        quota_type: of the bucket.
    """
    text = _WORDS[part.cause](part.facts, quota_type)
    return f"{text}; a burst or growth{_known_text(part.facts[UNDECIDED])}" if part.is_undecided else text


def _known_text(known_ms: Fact) -> str:
    """`, known at 11-21 20:05:16`."""
    return f", known at {_time(int(known_ms or 0))}"


def share_text(part: Part, delay_ms: int) -> str:
    """`81 % of the delay`: the part of a cause."""
    return f"{100 * part.share_ms / delay_ms:.0f} % of the delay"


def main_sentence(found: Reasons, *, with_names: bool = True) -> str:
    """The main cause with its part of the delay, in one sentence; empty if the delay is too short for causes.

    Args:
        found: the bucket with its causes.
        with_names: whether clients may be named.
    """
    attribution = found.attribution
    if attribution.main is None:
        return ""
    if not attribution.named:
        return f"steady at the limit: no change explains the delay{_shared_by(found, with_names=with_names)}"
    first = attribution.named[0]
    is_plain = with_names or "user" not in first.facts
    evidence = evidence_text(first, found.bucket.quota_type) if is_plain else _title_until(first)
    text = f"{share_text(first, attribution.delay_ms)}: {evidence}"
    more = attribution.named[1:]
    others = ", ".join(f"{title_of(part)} {part.share_percent:.0f} %" for part in more)
    return f"{text} (then {others})" if more else text


def _title_until(part: Part) -> str:
    """The name of a cause, with the time at which it is known if it may still be a burst."""
    title = title_of(part)
    return f"{title}{_known_text(part.facts[UNDECIDED])}" if part.is_undecided else title


def _shared_by(found: Reasons, *, with_names: bool) -> str:
    """How many clients share a bucket, and how much the first of them caused; empty if one has it alone."""
    if found.clients < 2:
        return ""
    text = f"; {found.clients:,} clients share the bucket"
    if found.sharing is None or not with_names or found.sharing.clients[0].client == OTHERS:
        return text
    first = found.sharing.clients[0]
    percent = 100 * first.caused_ms / found.attribution.delay_ms
    return f"{text}, and {bucket_text(*first.client, None)} caused {percent:.0f} % of the delay"


def short_text(found: Reasons) -> str:
    """The main cause in a few words, for a column; empty if the delay is too short for causes."""
    attribution = found.attribution
    if attribution.main is None:
        return ""
    if not attribution.named:
        return f"{TITLES[Cause.STEADY]}, shared" if found.clients > 1 else TITLES[Cause.STEADY]
    first = attribution.named[0]
    return f"{title_of(first)} {first.share_percent:.0f} %"
