"""The messages of the decision topic: the quotas in force, those of them that enforcement has set, and the new ones.

The topic is compacted: the last message of a key is complete. There is one key per entity,
`<cluster>/<canonical entity>`, with the cluster's name sanitised like any other. A message without value means that the
entity has no quota any more. The key `<cluster>/` is the heartbeat: it has the time up to which the quotas are known.
`docs/gateways.md` shows the JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from kquota_spark.enforce.changes import Event, LogEntry, StepId
from kquota_spark.model.quotas.entities import DEFAULT, Entity, Name
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import END_MS, RuleBook

VERSION = 1

MOST_AHEAD_MS = 60_000
"""Maximum time by which a message may be ahead of the reader's clock, ms: clocks do not differ by more."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=END_MS)]
_NonFinite = Literal["NaN", "Infinity", "-Infinity"]
"""Java's names of the numbers that JSON does not have; brokers accept them as quotas."""
_Amount = float | _NonFinite


class MessageError(ValueError):
    """A message is not valid. The text has the reason, and quotes only a few characters of the message."""


@dataclass(frozen=True, slots=True)
class Ours:
    """A quota that enforcement has set or removed, and the value that it restores at the end.

    `until_ms` (epoch ms) is None for a permanent change. `before` is None if the key was not set.
    """

    plan_id: str
    reason: str
    until_ms: int | None
    before: float | None


@dataclass(frozen=True, slots=True)
class Decided:
    """All quotas in force of one entity; enforcement removed a key that is in `ours` but not in `quotas`."""

    entity: Entity
    quotas: Mapping[QuotaKey, float]
    ours: Mapping[QuotaKey, Ours] = field(default_factory=dict)
    issued_ms: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether the message needs a value; otherwise it is a tombstone."""
        return bool(self.quotas or self.ours)

    def after(self, time_ms: int) -> Mapping[QuotaKey, float]:
        """The quotas at `time_ms`, after the restoration of our expired changes."""
        over = {
            key: ours.before
            for key, ours in self.ours.items()
            if ours.until_ms is not None and ours.until_ms <= time_ms
        }
        if not over:
            return self.quotas
        merged = {**self.quotas, **over}
        return {key: value for key, value in merged.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Removed:
    """An entity that has no quota any more."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """All edits of quotas up to `known_through_ms` are in the messages before this one."""

    known_through_ms: Milliseconds
    issued_ms: Milliseconds


Message = Decided | Removed | Heartbeat


class Encoded(NamedTuple):
    """Key and value of a Kafka message; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class _Name(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    default: bool = False


class _Entity(msgspec.Struct, omit_defaults=True):
    user: _Name | None = None
    client_id: _Name | None = None


class _Ours(msgspec.Struct):
    plan_id: str
    reason: str
    until_ms: Milliseconds | None
    before: _Amount | None


class _Version(msgspec.Struct):
    version: int


class _Quotas(msgspec.Struct):
    version: int
    entity: _Entity
    quotas: dict[str, _Amount]
    ours: dict[str, _Ours]
    issued_ms: Milliseconds


_read_version = msgspec.json.Decoder(_Version).decode
_read_quotas = msgspec.json.Decoder(_Quotas).decode
_read_heartbeat = msgspec.json.Decoder(Heartbeat).decode


def key_prefix(cluster_id: str) -> bytes:
    """The prefix of all keys of a cluster; it is also the key of the heartbeat."""
    # A sanitised name has no slash, so two clusters cannot have the same key.
    return f"{sanitise(cluster_id)}/".encode()


def encode(cluster_id: str, message: Message) -> Encoded:
    """A message as key and value; a message that needs no value is a tombstone."""
    prefix = key_prefix(cluster_id)
    if isinstance(message, Heartbeat):
        return Encoded(prefix, msgspec.json.encode({"version": VERSION} | asdict(message)))
    key = prefix + str(message.entity).encode()
    if isinstance(message, Removed) or not message.is_needed:
        return Encoded(key, None)
    quotas = _Quotas(
        VERSION,
        _Entity(_written_name(message.entity.user), _written_name(message.entity.client_id)),
        {key.value: _written(message.quotas[key]) for key in QuotaKey if key in message.quotas},
        {key.value: _written_ours(message.ours[key]) for key in QuotaKey if key in message.ours},
        message.issued_ms,
    )
    return Encoded(key, msgspec.json.encode(quotas))


def decode(cluster_id: str, key: bytes | None, value: bytes | None) -> Message | None:
    """The decoded message; None for a message of another cluster.

    Unknown fields and quota keys are ignored: a later release may add some.

    Raises:
        MessageError: it is not a message of version 1, or its key and value name different entities.
    """
    if key is None:
        raise MessageError("a message without key")
    prefix = key_prefix(cluster_id)
    if not key.startswith(prefix):
        return None
    if key == prefix:
        if value is None:
            raise MessageError("a heartbeat without value")
        beat: Heartbeat = _read(_read_heartbeat, value)
        return beat
    entity = _entity_of_key(key.removeprefix(prefix))
    if value is None:
        return Removed(entity)
    found: _Quotas = _read(_read_quotas, value)
    if _named(found.entity) != entity:
        raise MessageError("its value is about another entity than its key")
    quotas = {key: float(found.quotas[key.value]) for key in QuotaKey if key.value in found.quotas}
    ours = {key: _read_ours(found.ours[key.value]) for key in QuotaKey if key.value in found.ours}
    return Decided(entity, quotas, ours, found.issued_ms)


def _read(decoder: Any, value: bytes) -> Any:
    try:
        version = _read_version(value).version
        if version != VERSION:
            raise MessageError(f"version {version}, expected {VERSION}: written by a newer release?")
        return decoder(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(str(error)[:200]) from None


def _entity_of_key(text: bytes) -> Entity:
    try:
        entity = Entity.parse(text.decode())
    except ValueError:
        raise MessageError("its key names no entity") from None
    if str(entity).encode() != text:
        raise MessageError("its key is not the canonical name of an entity")
    return entity


def _named(entity: _Entity) -> Entity:
    if entity.user is None and entity.client_id is None:
        raise MessageError("its value names no entity")
    return Entity(*(part if part is None else _name(part) for part in (entity.user, entity.client_id)))


def _name(part: _Name) -> Name:
    if part.default == (part.name is not None):
        raise MessageError("a part of an entity is either a name or the default")
    return DEFAULT if part.default else part.name


def _written_name(name: Name) -> _Name | None:
    if name is None:
        return None
    return _Name(default=True) if name is DEFAULT else _Name(str(name))


def _written(amount: float) -> _Amount:
    if math.isfinite(amount):
        return amount
    if math.isnan(amount):
        return "NaN"
    return "Infinity" if amount > 0 else "-Infinity"


def _written_ours(ours: Ours) -> _Ours:
    before = None if ours.before is None else _written(ours.before)
    return _Ours(ours.plan_id, ours.reason, ours.until_ms, before)


def _read_ours(ours: _Ours) -> Ours:
    before = None if ours.before is None else float(ours.before)
    return Ours(ours.plan_id, ours.reason, ours.until_ms, before)


def decided(rules: RuleBook, log: Iterable[LogEntry], time_ms: int) -> dict[Entity, Decided]:
    """The message of each entity that has a quota, or had one until enforcement removed it.

    A change of ours counts only if the source of the quotas shows it.

    Args:
        rules: quotas over time.
        log: `enforcement_log`, oldest first.
        time_ms: now, epoch ms.
    """
    periods = {entity: rules.at(entity, time_ms) for entity in rules}
    quotas: dict[Entity, dict[QuotaKey, float]] = {
        entity: {key: value for key, value in period.values.items() if isinstance(key, QuotaKey)}
        for entity, period in periods.items()
        if period is not None
    }
    ours: dict[Entity, dict[QuotaKey, Ours]] = {}
    for entry in _open(log):
        plan_id, proposal = entry.step_id.plan_id, entry.proposal
        entity, key = proposal.quota
        # An entity may have no quota now, or may never have had one: both count as a key that is not set.
        if quotas.get(entity, {}).get(key) == proposal.after:
            change = Ours(plan_id, proposal.reason, proposal.expires_at_ms, proposal.before)
            ours.setdefault(entity, {})[key] = change
    found = (Decided(entity, quotas.get(entity, {}), ours.get(entity, {})) for entity in quotas | ours)
    return {message.entity: message for message in found if message.is_needed}


def _open(log: Iterable[LogEntry]) -> list[LogEntry]:
    """Changes that were applied and not reverted, in the order in which they were applied."""
    found: dict[StepId, LogEntry] = {}
    for entry in log:
        if entry.event is Event.APPLIED:
            found[entry.step_id] = entry
        elif entry.event in (Event.RESTORED, Event.SUPERSEDED):
            found.pop(entry.step_id, None)
    return list(found.values())


def differences(
    cluster_id: str, held: Mapping[bytes, bytes | None], wanted: Mapping[Entity, Decided], issued_ms: int
) -> list[Encoded]:
    """The messages that bring the topic to the wanted state, in the order of their keys.

    Args:
        cluster_id: the cluster; messages of others are ignored.
        held: the last value of each key in the topic.
        wanted: the wanted message of each entity; other entities have no quota.
        issued_ms: now, epoch ms; a message that differs only in this time is not issued again.
    """
    prefix = key_prefix(cluster_id)
    new = [encode(cluster_id, replace(message, issued_ms=issued_ms)) for message in wanted.values()]
    keys = {message.key for message in new}
    removed = [
        Encoded(key, None)
        for key, value in held.items()
        if value is not None and key.startswith(prefix) and key != prefix and key not in keys
    ]
    changed = [
        message for message in new if not _equals(cluster_id, held.get(message.key), message, issued_ms)
    ]
    return sorted([*removed, *changed])


def _equals(cluster_id: str, value: bytes | None, wanted: Encoded, issued_ms: int) -> bool:
    """Whether the message in the topic equals the wanted one, apart from its time of issue."""
    try:
        held = decode(cluster_id, wanted.key, value)
    except MessageError:
        return False
    # Compared in encoded form: NaN is not equal to itself.
    return isinstance(held, Decided) and encode(cluster_id, replace(held, issued_ms=issued_ms)) == wanted


def newest_issue_ms(cluster_id: str, held: Mapping[bytes, bytes | None], now_ms: int) -> int:
    """When the newest message in the topic was issued, epoch ms; 0 for none. A later message may not be older.

    Messages issued in the future do not count.

    Args:
        cluster_id: the cluster; messages of others are ignored.
        held: the last value of each key in the topic.
        now_ms: the wall clock, epoch ms.
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
