"""What clients do about a throttle, as far as a request log can tell: IGNORES_THROTTLE and what looks like it.

From Kafka 2.0 on a throttled connection is muted (KIP-219): the next request on it is read when the throttle is over,
whatever the client does, and what a pipelining client had in flight comes in one go. So the times on one connection
prove nothing, and nobody is accused by them: a client that ignores throttles and stays on its connection is slowed
down like one that obeys, and is not found. Two things tell:

* A client that leaves each throttled connection within 2 s and goes on with a new one escapes the mute. Short-lived
  processes with one client id look alike once in a while, so it must be 5 times at least, and after half of all its
  throttles. A client in a time-out leaves late: what happens 10 s after the response and later is called that.
* Requests of a version from before KIP-219 (produce 6, fetch 8): their clients do not know that they are to wait.

The software is named because librdkafka, kafka-go and others never wait by themselves; that alone is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kquota_spark.findings.findings import Finding, Kind, Severity, client_text
from kquota_spark.model.measure.apis import Api, does_client_hold_back

SHORTEST_THROTTLE_MS = 200
"""Shorter throttles leave no time to see what a client does in them."""
BEFORE_END_MS = 100
"""A new connection this near to the end of the throttle may have waited for it."""
LONGEST_ESCAPE_MS = 2_000
"""An escape is back on a new connection sooner than this; between this and a time-out it is neither."""
LEAST_ESCAPES = 5
LEAST_ESCAPE_PERCENT = 50.0
"""Escapes, and their share of all throttles that are long enough."""
SHORTEST_TIMEOUT_MS = 10_000
"""A client that leaves later than this has run into a time-out: the defaults are 30 s in Java, 60 s in librdkafka."""
LEAST_TIMEOUTS = 2
LEAST_OLD_THROTTLES = 5
LEAST_STARVED_FETCHES = 5
LEAST_STARVED_MS = 30_000


@dataclass(frozen=True, slots=True)
class ThrottledEnd:
    """A connection whose last request was throttled, and the next connection of that client from that host.

    `gap_ms` is from the throttled response to the first request of the next connection, which came before the end of
    the throttle, less `BEFORE_END_MS`.
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

    `throttles` are those of `SHORTEST_THROTTLE_MS` and more. After so many of them it was back on a new connection
    before `LONGEST_ESCAPE_MS` (`escapes`), or from `SHORTEST_TIMEOUT_MS` on (`timeouts`); some of these are kept.
    `versions` counts throttled requests by (API, version).
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
        """Its name for people."""
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
    """Who escapes throttles, who cannot obey them, and who times out in them."""
    found: list[Finding] = []
    for client in clients:
        for look in (_escapes, _cannot_obey, _times_out):
            finding = look(client)
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
            {"api": Api(api).name, "api_version": version, "throttled": count} for api, version, count in old
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
    """STARVED: throttled again and again, so that all its fetches come back empty (KAFKA-9677 is one reason)."""
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
                "throttled_fetches": run.fetches,
                "lasted_ms": run.until_ms - run.first_ms,
                "longest_throttle_ms": run.longest_throttle_ms,
            }
            for run in runs
        ),
    )
