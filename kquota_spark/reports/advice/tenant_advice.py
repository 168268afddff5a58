"""What a tenant can do without asking anybody: the advice of docs/tenants.md that fits the tenant's traffic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Any, NamedTuple

from kquota_spark.formats.text.person_units import (
    amount_text,
    person_bytes,
    person_count,
    person_ms,
    rate_text,
)
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.reports.advice.throttle_causes import WINDOW_S
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import Recommendation, ThrottledBucket

SMALL_REQUEST_BYTES = 16_384
"""The default batch.size of a producer (bytes): a smaller request was sent before a batch was full."""
MANY_CONNECTIONS = 100
REQUEST_TIMEOUT_MS = 30_000
"""The default request.timeout.ms of clients (ms)."""
BURST_PERCENT = 50.0
"""Percent of time throttled below which a tenant that uses less than the limit on average sends in bursts."""
_PRODUCE = QuotaType.PRODUCE.value

_USED = """
select quota_type, coalesce(sum(amount), 0)::bigint as amount, coalesce(sum(requests), 0)::bigint as requests,
       coalesce(bool_or(client_id = ''), false) as has_no_name
from used where is_log group by all
"""
_LINES = """
select quota_type, max(charged_bytes) as largest_bytes, max(observed_throttle_ms) as longest_ms,
       count(distinct connection) as connections
from requests
where cluster_id = ? and kind = 'request' and "user" = ? and record_time_ms >= ? and record_time_ms < ?
  and quota_type is not null group by all
"""


class _Seen(NamedTuple):
    """One quota type in which a tenant was throttled: its use, figures of its logged requests, and its worst bucket."""

    quota_type: str
    used: dict[str, Any]
    lines: dict[str, Any]
    throttled: ThrottledBucket
    covered_s: int


class _Piece(NamedTuple):
    title: str
    reason: str


def tenant_advice(scope: Scope, throttled: Collection[ThrottledBucket]) -> Iterator[Recommendation]:
    """One recommendation for each piece of advice that the tables support, with the figure as its reason."""
    worst: dict[str, ThrottledBucket] = {}
    for one in sorted(throttled, key=lambda one: -one.delay_ms):
        worst.setdefault(one.bucket.quota_type, one)
    used = {row["quota_type"]: row for row in scope.rows(_USED)}
    during = scope.cluster_id, scope.tenant, scope.asked.from_ms, scope.asked.to_ms
    lines = {row["quota_type"]: row for row in scope.rows(_LINES, *during)} if worst else {}
    for quota_type, of_type in worst.items():
        if quota_type in used:
            seen = _Seen(
                quota_type, used[quota_type], lines.get(quota_type, {}), of_type, scope.covered_seconds
            )
            for title, reason in chain.from_iterable(advise(seen) for advise in _ADVICE):
                yield Recommendation("", "", None, None, reason, "", title=title, delay_ms=of_type.delay_ms)


def _compress(seen: _Seen) -> Iterator[_Piece]:
    if seen.quota_type == _PRODUCE:
        yield _Piece(
            "Compress what you send",
            f"you sent {amount_text(_PRODUCE, seen.used['amount'])}, counted as it was sent. compression.type=lz4 or "
            "zstd makes two to five times as much fit, for text and JSON",
        )


def _batch(seen: _Seen) -> Iterator[_Piece]:
    amount, requests = seen.used["amount"], seen.used["requests"]
    if seen.quota_type == _PRODUCE and requests and amount < SMALL_REQUEST_BYTES * requests:
        yield _Piece(
            "Send fewer and larger requests",
            f"your {person_count(requests)} requests had {person_bytes(round(amount / requests))} on average. "
            "linger.ms=20 and batch.size=131072 make fewer of them, which compress better",
        )


def _large(seen: _Seen) -> Iterator[_Piece]:
    limit, largest = seen.throttled.limit_per_s, seen.lines.get("largest_bytes")
    if seen.quota_type not in BANDWIDTH or not limit or largest is None or largest <= WINDOW_S * limit:
        return
    setting = "max.request.size" if seen.quota_type == _PRODUCE else "fetch.max.bytes"
    yield _Piece(
        f"Keep a {'request' if seen.quota_type == _PRODUCE else 'fetch'} below ten seconds of your limit",
        f"your largest had {person_bytes(largest)}, and ten seconds of {rate_text(seen.quota_type, limit)} are "
        f"{person_bytes(round(WINDOW_S * limit))}: set {setting} below that",
    )


def _spread_out(seen: _Seen) -> Iterator[_Piece]:
    limit, percent = seen.throttled.limit_per_s, seen.throttled.time_throttled_percent
    if not limit or seen.quota_type not in BANDWIDTH or seen.throttled.shared_with:
        return
    mean = 100 * seen.used["amount"] / seen.covered_s / limit
    if percent < BURST_PERCENT and mean < 100:
        yield _Piece(
            "Spread out what need not be now",
            f"you were throttled in {percent:.0f} % of the time, and used {mean:.0f} % of the limit on average: the "
            "same bytes in a longer time do not wait",
        )


def _few_connections(seen: _Seen) -> Iterator[_Piece]:
    connections = seen.lines.get("connections") or 0
    if connections > MANY_CONNECTIONS:
        yield _Piece(
            "Keep your connections",
            f"you used {connections:,}. A new connection does not end a pause, because bytes are counted by name, and "
            "each costs a handshake",
        )


def _wait(seen: _Seen) -> Iterator[_Piece]:
    longest_ms = seen.lines.get("longest_ms") or 0
    if longest_ms >= REQUEST_TIMEOUT_MS:
        yield _Piece(
            "Give it time",
            f"the longest pause was {person_ms(longest_ms)}. request.timeout.ms and delivery.timeout.ms must be "
            "longer, or what waits is sent a second time",
        )


def _name(seen: _Seen) -> Iterator[_Piece]:
    if seen.used["has_no_name"]:
        yield _Piece(
            "Set a client.id",
            "some of your requests have none: they are seen together, and often get the worst of the defaults",
        )


_ADVICE: tuple[Callable[[_Seen], Iterator[_Piece]], ...] = (
    _compress, _batch, _large, _spread_out, _few_connections, _wait, _name,
)  # fmt: skip
