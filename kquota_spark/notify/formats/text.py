"""An event as one sentence for people.

Each format passes its own escape function, and every text that another person or client chose is escaped with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    broker_text,
    bucket_text,
    iso_time,
    person_count,
    person_ms,
    person_percent,
    quota_text,
    rate_text,
)
from kquota_spark.formats.text.shell_words import shell_line
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.notify.news.events import Event
from kquota_spark.notify.news.lanes import Message

Escape = Callable[[str], str]
_BEHIND = {
    "log": "no line of a request log is newer than {at}: is the audit running, and do the shippers send?",
    "jmx": "no sample of JMX is newer than {at}: is the audit running, and does the collector send?",
    "verdicts": "verdicts end at {at}, and usage goes further: see the log of the audit job",
    "quotas": "quotas are known through {at}: is the audit running, and does the source of the quotas answer?",
}


def sentence(event: Event, escape: Escape) -> str:
    """The sentence of an event: what happened, where, and what to do."""
    return _SENTENCES[event.kind](event, event.facts, escape)


def _violation(event: Event, facts: dict[str, Any], escape: Escape) -> str:
    quota_type, broker_id = facts["quota_type"], facts["broker_id"]
    bucket = escape(bucket_text(facts["user"], facts["client_id"], facts["tags"]))
    where = f"{bucket}, {quota_type}, broker {broker_text(broker_id)}"
    peak, limit = (rate_text(quota_type, facts[name]) for name in ("peak_rate_per_s", "limit_per_s"))
    figures = [f"peak {peak}, {person_percent(facts['peak_quota_used_percent'])} of {limit}"]
    if facts["delay_ms"] is not None:
        requests = person_count(facts["throttled_requests"] or 0)
        figures.append(f"total delay {person_ms(facts['delay_ms'])} of {requests} throttled requests")
    figures.append(f"rule {escape(facts['rule'] or '-')}")
    if facts.get("why"):
        figures.append(f"why: {escape(facts['why'])}")
    since = f"since {iso_time(event.since_ms)}"
    if event.status == "over":
        since = f"after {person_ms(event.at_ms - event.since_ms)}, it began at {iso_time(event.since_ms)}"
    state = "above its limit" if event.status == "begins" else "no longer above its limit"
    return f"{where}: {state} {since}; {'; '.join(figures)}"


def _change(facts: dict[str, Any], escape: Escape) -> tuple[str, str, str]:
    """The quota, its value before, and its value after."""
    before, after = (
        quota_text(QuotaKey(facts["key"]), facts[name]) for name in ("value_before", "value_after")
    )
    return f"{escape(facts['entity'])} {facts['key']}", before, after


def _plan(facts: dict[str, Any], escape: Escape) -> str:
    return f"plan {facts['plan_id']} step {facts['step']}, policy {escape(facts['policy'])}"


def _waiting(event: Event, facts: dict[str, Any], escape: Escape) -> str:
    quota, before, after = _change(facts, escape)
    if event.status == "over":
        return f"{_plan(facts, escape)}: waits no longer for approval ({quota}, {before} to {after})"
    return (
        f"{_plan(facts, escape)}: waits for approval of {quota}, {before} to {after}; {escape(facts['reason'])}; "
        f"next: kquota enforce approve {facts['plan_id']} --yes"
    )


def _applied(_: Event, facts: dict[str, Any], escape: Escape) -> str:
    quota, before, after = _change(facts, escape)
    until = facts["expires_ms"]
    end = "" if until is None else f", until {iso_time(until)}"
    by = f"by {escape(facts['actor'])}"
    return (
        f"{quota} is {after}, before {before}{end}; {_plan(facts, escape)}, {by}; {escape(facts['reason'])}"
    )


def _rolled_back(_: Event, facts: dict[str, Any], escape: Escape) -> str:
    quota, before, after = _change(facts, escape)
    return f"{quota} is again {before}, it was {after}; {_plan(facts, escape)}, by {escape(facts['actor'])}"


def _failed(_: Event, facts: dict[str, Any], escape: Escape) -> str:
    quota, before, after = _change(facts, escape)
    what = f"{quota} was not changed between {before} and {after}"
    return f"{what}; {_plan(facts, escape)}; {escape(facts['detail'])}; next: kquota enforce status"


def _frozen(event: Event, facts: dict[str, Any], escape: Escape) -> str:
    if event.status == "over":
        return f"enforcement is no longer frozen; it was since {iso_time(event.since_ms)}"
    by = f"by {escape(facts['actor'])}: {escape(facts['reason'])}"
    return f"enforcement is frozen since {iso_time(event.since_ms)} {by}; next: kquota unfreeze"


def _behind(event: Event, facts: dict[str, Any], _: Escape) -> str:
    if event.status == "over":
        return f"the audit is no longer behind ({facts['part']}); it was since {iso_time(event.since_ms)}"
    return f"the audit is behind: {_BEHIND[facts['part']].format(at=iso_time(facts['newest_ms']))}; next: kquota doctor"


def _disagreeing(event: Event, facts: dict[str, Any], _: Escape) -> str:
    if event.status == "over":
        return f"the audit agrees with the brokers again; it did not since {iso_time(event.since_ms)}"
    share = f"{facts['agreement_percent']:.2f} % of {person_count(facts['requests_judged'])} certain verdicts"
    return f"the audit disagrees with the brokers: {share} of the last hour agree; next: kquota agreement"


def _burning(event: Event, facts: dict[str, Any], escape: Escape) -> str:
    owner = f"owner {escape(facts['owner'])}"
    if event.status == "over":
        return f"{owner}: its error budget no longer burns too fast; it did since {iso_time(event.since_ms)}"
    pace = f"throttles burn its error budget {facts['burn_rate']:.1f} times too fast since {iso_time(event.since_ms)}"
    spent = f"{person_ms(1_000 * facts['time_throttled_s'])} throttled in {facts['window']}"
    left = f"{facts['budget_left_percent']:.0f} % of the budget of {facts['objective_days']} days is left"
    contact = f"; contact {escape(facts['contact'])}" if facts["contact"] else ""
    command = shell_line(["kquota", "budget", "--by", "bucket", "--owner", facts["owner"]])
    return f"{owner}: {pace}; {spent}; {left}{contact}; next: {escape(command)}"


def _test(_: Event, facts: dict[str, Any], escape: Escape) -> str:
    return f"a test of the route {escape(facts['route'])}: nothing has happened"


_SENTENCES: dict[str, Callable[[Event, dict[str, Any], Escape], str]] = {
    "violation": _violation,
    "plan_waiting": _waiting,
    "applied": _applied,
    "rolled_back": _rolled_back,
    "failed": _failed,
    "frozen": _frozen,
    "audit_behind": _behind,
    "audit_disagreeing": _disagreeing,
    "budget_burning": _burning,
    "test": _test,
}


def events_text(count: int) -> str:
    """A number of events: `1 event`, `2 events`."""
    return f"{count} event{'' if count == 1 else 's'}"


def title(cluster_id: str, message: Message) -> str:
    """The cluster, then `3 events (applied, violation)`; it has no text from clients."""
    kinds = ", ".join(sorted({event.kind.replace("_", " ") for event in message.events}))
    return f"kquota {terminal_text(cluster_id)}: {events_text(len(message.events))} ({kinds})"


def rest(count: int) -> str:
    """A sentence with the number of events that the message leaves out."""
    return f"{count:,} more events are left out: see kquota violations and kquota enforce status"


def markup_text(text: str) -> str:
    """Text for receivers that read `<` and `&` as markup, such as Slack's `<!channel>`; no control characters."""
    return terminal_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
