"""Exchanges of the simulator: their sums, and rows of `requests` as the log of that broker would have given them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kquota_spark.model.measure.apis import Api
from kquota_spark.model.simulation.broker import Exchange
from tests.support.tables.table_rows import T0_MS, request


class Totals(NamedTuple):
    """Sums over exchanges."""

    requests: int
    sent_bytes: int
    charged_bytes: int
    throttled: int
    throttle_ms: int


def totals(exchanges: Iterable[Exchange]) -> Totals:
    found = list(exchanges)
    return Totals(
        requests=len(found),
        sent_bytes=sum(e.sent_bytes for e in found),
        charged_bytes=sum(e.charged_bytes for e in found),
        throttled=sum(e.throttle_ms > 0 for e in found),
        throttle_ms=sum(e.throttle_ms for e in found),
    )


def requests_of(exchanges: Iterable[Exchange], host: str = "10.0.0.1") -> list[dict[str, Any]]:
    """What was answered: a request in flight at the end has no line yet."""
    return [
        request(
            number,
            T0_MS + exchange.charged_ms,
            log_time_ms=T0_MS + exchange.charged_ms,
            user=exchange.client.user,
            client_id=exchange.client.client_id,
            api_key=int(exchange.client.api),
            api_version=exchange.client.version,
            quota_type="produce" if exchange.client.api is Api.PRODUCE else "fetch",
            point_kind=_kind(exchange),
            charged_bytes=exchange.charged_bytes,
            observed_throttle_ms=exchange.throttle_ms,
            connection=f"10.0.0.9:9092-{host}:{40_000 + exchange.connection}-{exchange.connection}",
            topics=[] if exchange.charged_bytes == 0 else ["orders"],
            software_name="simulated",
            software_version="1",
        )
        for number, exchange in enumerate(exchanges)
        if exchange.charged_ms is not None
    ]


def _kind(exchange: Exchange) -> int:
    if exchange.client.api is Api.PRODUCE:
        return 0
    return 2 if exchange.throttle_ms > 0 else 1
