"""UNSTABLE_CLIENT_ID: ids that are made anew for each run, so that each run has a bucket of its own.

Ids of one user that differ in digits, hexadecimal numbers or UUIDs only are one family. A family of numbered
instances that stay (worker-1 to worker-40) is none of these: at least 20 ids, and 80 % of them, must have been seen
for less than half the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kquota_spark.findings.findings import Finding, Kind, Severity

LEAST_IDS = 20
SHORT_LIVED_PERCENT = 80.0
_LONG_LIVED = 0.5
_MOST_ROWS = 100
_VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{6,}|[0-9]+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class IdSeen:
    """When a client id of a user was first and last seen, and how much it moved."""

    user: str
    client_id: str
    first_ms: int
    last_ms: int
    amount: int


def unstable_client_ids(seen: Iterable[IdSeen], from_ms: int, to_ms: int) -> list[Finding]:
    """Families of short-lived ids between two times."""
    families: dict[tuple[str, str], list[IdSeen]] = {}
    for one in seen:
        pattern = _VARYING.sub("#", one.client_id)
        if pattern != one.client_id:
            families.setdefault((one.user, pattern), []).append(one)
    found = []
    for (user, pattern), ids in families.items():
        short = [one for one in ids if one.last_ms - one.first_ms < _LONG_LIVED * (to_ms - from_ms)]
        if len(short) < LEAST_IDS or 100 * len(short) < SHORT_LIVED_PERCENT * len(ids):
            continue
        found.append(
            Finding(
                Kind.UNSTABLE_CLIENT_ID,
                Severity.WARNING,
                f"user {user}, client ids {pattern}",
                f"{len(ids)} client ids of one pattern, {len(short)} of them seen for less than half of the time "
                f"(reported from {LEAST_IDS} and {SHORT_LIVED_PERCENT:.0f} % on): no rule names them, and each gets a "
                "bucket of its own from a default",
                "set one client.id for the application, or limit it by its user",
                tuple(_row(one) for one in ids[:_MOST_ROWS]),
            )
        )
    return found


def _row(one: IdSeen) -> dict[str, str | int]:
    return {
        "user": one.user,
        "client_id": one.client_id,
        "first_ms": one.first_ms,
        "last_ms": one.last_ms,
        "bytes": one.amount,
    }
