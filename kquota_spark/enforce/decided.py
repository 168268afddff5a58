"""What the decision topic should say: the quotas in force, with what enforcement has set among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kquota_spark.enforce.changes import Event, LogEntry, StepId
from kquota_spark.enforce.decision_messages import (
    MOST_AHEAD_MS,
    Decided,
    Encoded,
    Heartbeat,
    MessageError,
    Ours,
    decode,
    encode,
    key_prefix,
)
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import RuleBook


def decided(rules: RuleBook, log: Iterable[LogEntry], time_ms: int) -> dict[Entity, Decided]:
    """The message of each entity that has a quota, or had one until enforcement removed it.

    A change of ours is believed only where the source of the quotas shows it.

    Args:
        rules: quotas over time.
        log: `enforcement_log`, oldest first.
        time_ms: now.
    """
    stretches = {entity: rules.at(entity, time_ms) for entity in rules}
    quotas: dict[Entity, dict[QuotaKey, float]] = {
        entity: {key: value for key, value in stretch.values.items() if isinstance(key, QuotaKey)}
        for entity, stretch in stretches.items()
        if stretch is not None
    }
    ours: dict[Entity, dict[QuotaKey, Ours]] = {}
    for entry in _open(log):
        entity, key = entry.proposal.quota
        # No stretch says that the entity never had a quota, and none that it has none now.
        if quotas.get(entity, {}).get(key) == entry.proposal.after:
            ours.setdefault(entity, {})[key] = _ours(entry)
    found = (Decided(entity, quotas.get(entity, {}), ours.get(entity, {})) for entity in quotas | ours)
    return {message.entity: message for message in found if message.is_needed}


def _open(log: Iterable[LogEntry]) -> list[LogEntry]:
    """Changes that were applied and not taken back, in the order in which they were applied."""
    found: dict[StepId, LogEntry] = {}
    for entry in log:
        if entry.event is Event.APPLIED:
            found[entry.step_id] = entry
        elif entry.event in (Event.RESTORED, Event.SUPERSEDED):
            found.pop(entry.step_id, None)
    return list(found.values())


def _ours(entry: LogEntry) -> Ours:
    proposal = entry.proposal
    return Ours(entry.step_id.plan_id, proposal.reason, proposal.expires_at_ms, proposal.before)


def differences(
    cluster_id: str, held: Mapping[bytes, bytes | None], wanted: Mapping[Entity, Decided], issued_ms: int
) -> list[Encoded]:
    """The messages that make the topic say what is wanted, in the order of their keys.

    Args:
        cluster_id: messages of others are left alone.
        held: the last value of each key in the topic.
        wanted: by entity; what is not here has no quota.
        issued_ms: now; a message that would say nothing new is not issued again.
    """
    prefix = key_prefix(cluster_id)
    new = [encode(cluster_id, replace(message, issued_ms=issued_ms)) for message in wanted.values()]
    keys = {message.key for message in new}
    gone = [
        Encoded(key, None)
        for key, value in held.items()
        if value is not None and key.startswith(prefix) and key != prefix and key not in keys
    ]
    changed = [message for message in new if not _says(cluster_id, held.get(message.key), message, issued_ms)]
    return sorted([*gone, *changed])


def _says(cluster_id: str, value: bytes | None, wanted: Encoded, issued_ms: int) -> bool:
    """Whether what the topic holds differs from what is wanted in its time of issue at most."""
    try:
        held = decode(cluster_id, wanted.key, value)
    except MessageError:
        return False
    # Compared as they are written: NaN is not equal to itself.
    return isinstance(held, Decided) and encode(cluster_id, replace(held, issued_ms=issued_ms)) == wanted


def newest_issue_ms(cluster_id: str, held: Mapping[bytes, bytes | None], now_ms: int) -> int:
    """When the newest message in the topic was issued; 0 for none. Nobody issues an older one after it.

    What says that it was issued in the future does not count.
    """
    newest_ms = 0
    for key, value in held.items():
        try:
            message = decode(cluster_id, key, value)
        except MessageError:
            continue
        if isinstance(message, Decided | Heartbeat) and message.issued_ms <= now_ms + MOST_AHEAD_MS:
            newest_ms = max(newest_ms, message.issued_ms)
    return newest_ms
