"""How clients react to a throttle, as far as a request log shows it: IGNORES_THROTTLE and similar findings.

From Kafka 2.0 on the broker mutes a throttled connection (KIP-219). It reads the next request when the throttle is
over, whatever the client does. The requests that a pipelining client had in flight arrive together. So the times on one
connection prove nothing, and no finding uses them. A client that ignores throttles and stays on its connection is
slowed down like one that obeys, and is not found. Two signs are used:

* A client that leaves each throttled connection within 2 s and continues with a new one escapes the mute. Short-lived
  processes with one client id sometimes do the same. So it must happen at least 5 times, and after half of all
  throttles of the client. A client that leaves 10 s after the response or later is reported as timed out instead.
* Requests have a version from before KIP-219 (produce 6, fetch 8). Their clients do not know that they must wait.

Findings name the software, because librdkafka, kafka-go and others never wait by themselves. That alone is not a
finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kquota_spark.findings.findings import Finding, Kind, Severity, client_text
from kquota_spark.model.measure.apis import Api, does_client_hold_back

SHORTEST_THROTTLE_MS = 200
"""Shortest throttle (ms) that counts: shorter ones leave no time to see what a client does."""
BEFORE_END_MS = 100
"""Time (ms) before the end of a throttle in which a new connection may have waited for the end."""
LONGEST_ESCAPE_MS = 2_000
"""An escaping client is on a new connection sooner than this (ms); between this and a time-out it is neither."""
LEAST_ESCAPES = 5
LEAST_ESCAPE_PERCENT = 50.0
"""Fewest escapes, and their smallest share of all throttles that are long enough (percent)."""
SHORTEST_TIMEOUT_MS = 10_000
"""Shortest time (ms) until a client that timed out leaves: the defaults are 30 s in Java, 60 s in librdkafka."""
LEAST_TIMEOUTS = 2
LEAST_OLD_THROTTLES = 5
LEAST_STARVED_FETCHES = 5
LEAST_STARVED_MS = 30_000


@dataclass(frozen=True, slots=True)
class ThrottledEnd:
    """A connection that ended with a throttled request, and the next connection of that client from that host.

    `gap_ms` is the time from the throttled response to the first request of the next connection. That request came at
    least `BEFORE_END_MS` before the end of the throttle.
    """

    broker_id: int
    connection: str
    ended_ms: int
    throttle_ms: int
    gap_ms: int
    next_connection: str


@dataclass(frozen=True, slots=True)
class ThrottledClient:
    """One (user, client id, host) on the brokers: how often it was throttled, and how its connections ended.

    `throttles` counts those of `SHORTEST_THROTTLE_MS` and more. `escapes` counts those after which the client was on a
    new connection before `LONGEST_ESCAPE_MS`, `timeouts` those from `SHORTEST_TIMEOUT_MS` on. `escape_ends` and
    `timeout_ends` have some of them. `versions` has the number of throttled requests per (API, version).
    """

    user: str
    client_id: str
    host: str
    software: str
    throttles: int
    escapes: int = 0
    escape_ends: Sequence[ThrottledEnd] = ()
    timeouts: int = 0
    timeout_ends: Sequence[ThrottledEnd] = ()
    versions: Sequence[tuple[int, int, int]] = ()

    @property
    def subject(self) -> str:
        """The name of the client in texts."""
        return f"{client_text(self.user, self.client_id)} at {self.host or '?'}"


@dataclass(frozen=True, slots=True)
class EmptyRun:
    """Throttled fetches of one client on one broker between two deliveries."""

    user: str
    client_id: str
    broker_id: int
    fetches: int
    first_ms: int
    until_ms: int
    longest_throttle_ms: int


def throttle_findings(clients: Iterable[ThrottledClient]) -> list[Finding]:
    """Findings about clients that escape throttles, that cannot obey them, and that time out in them."""
    found: list[Finding] = []
    for client in clients:
        for check in (_escapes, _cannot_obey, _times_out):
            finding = check(client)
            if finding is not None:
                found.append(finding)
    return found


def _escapes(client: ThrottledClient) -> Finding | None:
    if client.escapes < LEAST_ESCAPES or 100 * client.escapes < LEAST_ESCAPE_PERCENT * client.throttles:
        return None
    return Finding(
        Kind.IGNORES_THROTTLE,
        Severity.HIGH,
        client.subject,
        f"likely ignores throttling: after {client.escapes:,} of {client.throttles:,} throttles of "
        f"{SHORTEST_THROTTLE_MS} ms and more it left the connection and opened a new one within "
        f"{LONGEST_ESCAPE_MS // 1_000} s, inside the throttle (reported from {LEAST_ESCAPES} and "
        f"{LEAST_ESCAPE_PERCENT:.0f} % on). It is {client.software}",
        "check for a client that reconnects when it is slow, or processes that live for one request; the bucket still "
        "counts it, so lower its limit or refuse it",
        _end_rows(client.escape_ends),
    )


def _cannot_obey(client: ThrottledClient) -> Finding | None:
    old = [
        (api, version, count)
        for api, version, count in client.versions
        if api in (Api.PRODUCE, Api.FETCH) and not does_client_hold_back(Api(api), version)
    ]
    if sum(count for _, _, count in old) < LEAST_OLD_THROTTLES:
        return None
    names = ", ".join(f"{Api(api).name} v{version}" for api, version, _ in old)
    return Finding(
        Kind.IGNORES_THROTTLE,
        Severity.WARNING,
        client.subject,
        f"does not know that it is to wait: it was throttled {sum(count for _, _, count in old):,} times (reported "
        f"from {LEAST_OLD_THROTTLES} on) and speaks {names}; clients wait from PRODUCE v6 and FETCH v8 on (KIP-219)",
        "update the client library; until then only the muted connection slows it down",
        tuple(
            {"api": Api(api).name, "api_version": version, "throttled_requests": count}
            for api, version, count in old
        ),
    )


def _times_out(client: ThrottledClient) -> Finding | None:
    ends = client.timeout_ends
    if client.timeouts < LEAST_TIMEOUTS:
        return None
    longest_ms = max(end.throttle_ms for end in ends)
    gap_ms = min(end.gap_ms for end in ends)
    return Finding(
        Kind.THROTTLE_BEYOND_TIMEOUT,
        Severity.HIGH,
        client.subject,
        f"gives up waiting: {client.timeouts:,} times (reported from {LEAST_TIMEOUTS} on) it came back on a new "
        f"connection {gap_ms / 1_000:.0f} s or more into a throttle of up to {longest_ms / 1_000:.0f} s. "
        "What it had sent is sent again",
        "raise its quota, or its request.timeout.ms and delivery.timeout.ms beyond the throttle; smaller batches make "
        "shorter throttles",
        _end_rows(ends),
    )


def _end_rows(ends: Iterable[ThrottledEnd]) -> tuple[dict[str, str | int | None], ...]:
    return tuple(
        {
            "time_ms": end.ended_ms, "broker_id": end.broker_id, "throttle_ms": end.throttle_ms,
            "connection": end.connection, "back_after_ms": end.gap_ms, "new_connection": end.next_connection,
        }
        for end in ends
    )  # fmt: skip


def starved_consumers(runs: Iterable[EmptyRun]) -> list[Finding]:
    """STARVED: consumers throttled so often that all their fetches return empty (KAFKA-9677 is one reason)."""
    by_client: dict[tuple[str, str], list[EmptyRun]] = {}
    for run in runs:
        if run.fetches >= LEAST_STARVED_FETCHES and run.until_ms - run.first_ms >= LEAST_STARVED_MS:
            by_client.setdefault((run.user, run.client_id), []).append(run)
    return [_starved(user, client_id, of_client) for (user, client_id), of_client in by_client.items()]


def _starved(user: str, client_id: str, runs: Sequence[EmptyRun]) -> Finding:
    longest = max(runs, key=lambda run: run.until_ms - run.first_ms)
    return Finding(
        Kind.STARVED,
        Severity.HIGH,
        client_text(user, client_id),
        f"got nothing for {(longest.until_ms - longest.first_ms) / 1_000:.0f} s: {longest.fetches:,} fetches in a row "
        f"were throttled and came back empty (reported from {LEAST_STARVED_FETCHES} in {LEAST_STARVED_MS // 1_000} s "
        "on)",
        "raise consumer_byte_rate: ten windows of it must hold the largest batch and what shares the bucket; see too "
        "whether a request quota throttles it",
        tuple(
            {
                "time_ms": run.first_ms,
                "broker_id": run.broker_id,
                "throttled_requests": run.fetches,
                "lasted_ms": run.until_ms - run.first_ms,
                "longest_throttle_ms": run.longest_throttle_ms,
            }
            for run in runs
        ),
    )
