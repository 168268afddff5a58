"""Share consumers (KIP-932, Kafka 4.2): the fetch quota charges them, and the request log does not have the bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kquota_spark.findings.findings import Finding, Kind, Severity, client_text


class ShareConsumer(NamedTuple):
    """What `usage` has of one client that sent share fetches: their number, and the total delay by brokers, ms."""

    user: str
    client_id: str
    share_fetches: int
    total_delay_ms: int
    first_ms: int
    last_ms: int


def share_consumers(clients: Iterable[ShareConsumer]) -> list[Finding]:
    """SHARE_FETCH: clients of which `usage` lacks bytes."""
    return [
        Finding(
            Kind.SHARE_FETCH,
            Severity.WARNING if client.total_delay_ms else Severity.INFO,
            client_text(client.user, client.client_id),
            f"sent {client.share_fetches:,} fetches as a share consumer: consumer_byte_rate counts them, and the log "
            "does not have their size. The bytes in usage are without them, and verdicts of the bucket are uncertain; "
            f"the total delay of {client.total_delay_ms:,} ms is the brokers'",
            "read the byte rate of the client from JMX (kquota collect); a client id of its own keeps the bucket of "
            "other consumers certain",
            (
                {
                    "share_fetches": client.share_fetches,
                    "total_delay_ms": client.total_delay_ms,
                    "first_ms": client.first_ms,
                    "last_ms": client.last_ms,
                },
            ),
        )
        for client in clients
    ]
