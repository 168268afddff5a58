"""Findings about clients that do not depend on rules: new ids for each run, share fetches, and edits of quotas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from kquota_spark.findings.findings import Evidence, Finding, Kind, Severity, client_text
from kquota_spark.model.quotas.entities import Entity, parse_entity

LEAST_IDS = 20
SHORT_LIVED_PERCENT = 80.0
_LONG_LIVED = 0.5
_MOST_ROWS = 100
_MOST_NAMED = 3
_HOUR_MS = 3_600_000
_VARYING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{6,}|[0-9]+", re.IGNORECASE)
"""Matches a UUID, a hexadecimal number (or a word of the letters a to f), or a number."""


class IdSeen(NamedTuple):
    """When a client id of a user was first and last seen (epoch ms), and its bytes."""

    user: str
    client_id: str
    first_ms: int
    last_ms: int
    amount: int


def unstable_client_ids(seen: Iterable[IdSeen], from_ms: int, to_ms: int) -> list[Finding]:
    """UNSTABLE_CLIENT_ID: families of short-lived client ids between two times, where each id has its own bucket.

    Ids of one user that differ only in digits, hexadecimal numbers or UUIDs are one family. A family is reported if at
    least 20 ids, and 80 % of all its ids, were seen for less than half the time. So numbered instances that stay
    (worker-1 to worker-40) are not reported.
    """
    families: dict[tuple[str, str], list[IdSeen]] = {}
    for one in seen:
        pattern = _VARYING.sub(_mark, one.client_id)
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
                f"(reported from {LEAST_IDS} and {SHORT_LIVED_PERCENT:.0f} % on). No rule names them, and each gets a "
                "bucket of its own from a default",
                "set one client.id for the application, or limit it by its user",
                tuple(
                    dict(zip(("user", "client_id", "first_ms", "last_ms", "bytes"), one, strict=True))
                    for one in ids[:_MOST_ROWS]
                ),
            )
        )
    return found


def _mark(found: re.Match[str]) -> str:
    # Words such as "facade" are not numbers. A lookahead for a digit would take n steps at each of n letters instead.
    return found[0] if found[0].isalpha() else "#"


class ShareConsumer(NamedTuple):
    """The part of `usage` for one client that sent share fetches: their number, and the total delay by brokers (ms)."""

    user: str
    client_id: str
    share_fetches: int
    total_delay_ms: int
    first_ms: int
    last_ms: int


def share_consumers(clients: Iterable[ShareConsumer], collect: str = "kquota collect jmx") -> list[Finding]:
    """SHARE_FETCH: clients for which `usage` lacks bytes, mostly share consumers (KIP-932).

    Args:
        clients: the clients.
        collect: the command that reads rates from JMX, for the advice.
    """
    return [
        Finding(
            Kind.SHARE_FETCH,
            Severity.WARNING if client.total_delay_ms else Severity.INFO,
            client_text(client.user, client.client_id),
            f"sent {client.share_fetches:,} fetches without a size in the log: as a share consumer, in an old format, "
            "or in lines that could not be read; consumer_byte_rate counts them. "
            "The bytes in usage are without them, and verdicts of the bucket are uncertain; "
            f"the total delay of {client.total_delay_ms:,} ms is the brokers'",
            f"read the byte rate of the client from JMX ({collect}); a client id of its own keeps the bucket of "
            "other consumers certain",
            ({key: value for key, value in client._asdict().items() if key not in ("user", "client_id")},),
        )
        for client in clients
    ]


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """One key of one entity in one request; `value` is None if the key was removed."""

    entity: str
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class EditRequest:
    """One AlterClientQuotas request: its time (epoch ms), broker, sender and edits."""

    time_ms: int
    broker_id: int
    user: str
    client_id: str
    edits: tuple[QuotaEdit, ...]


def quota_edits(requests: Iterable[EditRequest]) -> list[Finding]:
    """QUOTA_EDIT: one finding per editor and hour; requests that edit the editor's own quota are a separate warning."""
    hours: dict[tuple[str, int, bool], list[EditRequest]] = {}
    for request in requests:
        if request.edits:
            is_own = any(_is_of(request.user, edit.entity) for edit in request.edits)
            hours.setdefault((request.user, request.time_ms // _HOUR_MS, is_own), []).append(request)
    return [_finding(user, is_own, found) for (user, _, is_own), found in hours.items()]


def _finding(user: str, is_own: bool, requests: Sequence[EditRequest]) -> Finding:
    edits = (edit for request in requests for edit in request.edits)
    # If a quota was set several times, the last value counts.
    last = {(edit.entity, edit.key): edit.value for edit in edits if not is_own or _is_of(user, edit.entity)}
    count = len(last)
    which = "its own quota" if is_own else f"{count:,} {'quota' if count == 1 else 'quotas'}"
    shown = ", ".join(
        f"{entity} {key} {'removed' if value is None else f'{value:,.0f}'}"
        for (entity, key), value in list(last.items())[:_MOST_NAMED]
    )
    more = f" and {count - _MOST_NAMED:,} more" if count > _MOST_NAMED else ""
    first, latest = (
        datetime.fromtimestamp(each.time_ms / 1_000, UTC) for each in (requests[0], requests[-1])
    )
    often = f"{len(requests):,} times on {first:%Y-%m-%d} from {first:%H:%M} to {latest:%H:%M} UTC "
    return Finding(
        Kind.QUOTA_EDIT,
        Severity.WARNING if is_own else Severity.INFO,
        f"user {user}",
        f"asked {often if len(requests) > 1 else ''}to change {which}: {shown}{more}",
        "see whether that was agreed; AlterConfigs on the cluster allows it" if is_own else "",
        tuple(_evidence(request, edit) for request in requests for edit in request.edits),
    )


def _evidence(request: EditRequest, edit: QuotaEdit) -> Evidence:
    place = {"time_ms": request.time_ms, "broker_id": request.broker_id, "client_id": request.client_id}
    return {**place, **asdict(edit)}


def _is_of(user: str, entity: str) -> bool:
    try:
        found = parse_entity(entity)
    except ValueError:
        return False
    return isinstance(found, Entity) and found.user == user
