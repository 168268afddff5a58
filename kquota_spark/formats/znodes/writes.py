"""The data that a direct change of quotas writes into ZooKeeper: entity nodes and change notifications.

Before a quota in a node is changed, a note of the node is made, to restore it byte by byte. A note contains the node's
key names and the text of that quota. It contains no other value, because a user's node holds the login too.

Source: Kafka 3.9 `ZkData`, `AdminZkClient`, `DynamicConfig`, `ZkConfigManager`. User nodes also hold SCRAM
credentials: they are kept, and no error quotes a payload.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kquota_spark.formats.znodes.nodes import (
    INTEGER_KEYS,
    decode_node,
    decode_quota_node,
    first_json,
    read_config,
)
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

EMPTY_NODE = b'{"version":1,"config":{}}'
"""Data of a node without keys, as brokers before 3.5 leave it, and newer ones if the node has children."""

CHANGE_NODE_PREFIX = "config_change_"
"""Name, below /config/changes, of the sequential node that makes brokers read an entity's node again."""

_LONG_LIMIT = 2**63
_INT_LIMIT = 2**31


def with_quotas(entity: AnyEntity, data: bytes | None, values: Mapping[AnyKey, float | None]) -> bytes | None:
    """The data of an entity's node with some quotas changed; all its other keys stay.

    Args:
        entity: entity of the node.
        data: the node's present data; None or empty if it holds nothing or does not exist.
        values: the quotas to set, in Kafka's units; None to remove one.

    Returns:
        The new data; None if no key is left. Brokers since 3.5 delete such a node unless it has children (KAFKA-14285);
        otherwise it holds EMPTY_NODE.

    Raises:
        ValueError: brokers would not read back the values, or something in the node would be lost.
    """
    is_of_ip = isinstance(entity, IpEntity)
    for key in values:
        if isinstance(key, IpQuotaKey) != is_of_ip:
            msg = f"{entity}: {key.value} is no quota of {'ips' if is_of_ip else 'users and client ids'}"
            raise ValueError(msg)
    config = config_to_change(entity, data)
    for key, value in values.items():
        if value is None:
            config.pop(key.value, None)
        else:
            config[key.value] = _text(entity, key, value)
    if not config:
        return None
    changed = encoded_config(config)
    read_back = decode_node(str(entity), changed)
    if read_back.left_alone:
        raise _refusal(entity, str(read_back.problem))
    return changed


def config_to_change(entity: AnyEntity, data: bytes | None) -> dict[str, str]:
    """The config of an entity's node, all keys in their order; empty if the node holds nothing or does not exist.

    Raises:
        ValueError: it holds something that rewriting would lose, or that brokers refuse to write there.
    """
    if not data:
        return {}
    node = read_config(data)
    if node.problem is not None:
        raise _refusal(entity, node.problem)
    document = first_json(data)
    if document.get("version", 1) != 1 or not document.keys() <= {"version", "config"}:
        raise _refusal(entity, "not in the format of version 1")
    if isinstance(entity, IpEntity):
        keys, is_for_quotas_only = {key.value for key in IpQuotaKey}, True
    else:
        keys = {key.value for key in QuotaKey}
        is_for_quotas_only = entity.client_id is not None or entity.user is DEFAULT
    if is_for_quotas_only and not node.config.keys() <= keys:
        raise _refusal(entity, "it holds other keys than quotas, which brokers refuse to write there")
    return dict(node.config)


def encoded_config(config: Mapping[str, str]) -> bytes:
    """The data of a node with this config, as brokers write it."""
    return _encoded({"version": 1, "config": config})


def change_notification(entity: AnyEntity) -> bytes:
    """The data of the notification that an entity's node was changed (version 2)."""
    return _encoded({"version": 2, "entity_path": str(entity)})


def _text(entity: AnyEntity, key: AnyKey, value: float) -> str:
    if isinstance(key, IpQuotaKey):
        # AdminZkClient refuses one below 0, and IpConfigHandler reads an int.
        if 0 <= value < _INT_LIMIT and value == int(value):
            return str(int(value))
        expected = "a whole number of 32 bits, 0 or more"
    elif key in INTEGER_KEYS:
        if -_LONG_LIMIT <= value <= _LONG_LIMIT and value == int(value):
            # Java's largest long, 2^63 - 1, is not a double: without `min` it would be written one too large.
            return str(min(int(value), _LONG_LIMIT - 1))
        expected = "a whole number of 64 bits"
    else:
        if math.isfinite(value):
            return repr(float(value))
        expected = "a finite number"
    raise ValueError(f"{entity}: {key.value} {value}, expected {expected}")


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _refusal(entity: AnyEntity, problem: str) -> ValueError:
    return ValueError(f"{entity}: its node is left as it is: {problem}")


class Form(StrEnum):
    """The form of a node; brokers read the first three alike, as no quotas."""

    ABSENT = "absent"
    NULL = "null"
    EMPTY = "empty"
    CONFIG = "config"


@dataclass(frozen=True, slots=True)
class NodeNote:
    """A note of a node, to restore one of its quotas."""

    form: Form
    keys: tuple[str, ...]
    """Names of all keys in their order."""
    text: str | None
    """Text of the quota's value; None if the key is not set."""

    def to_json(self) -> str:
        """The note as one line of JSON; equal for equal notes."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> NodeNote:
        """The note from the text of `to_json`; ValueError if the text is not such a note."""
        try:
            match json.loads(text):
                case {"form": str(form), "keys": list(keys), "text": str() | None as value}:
                    return cls(Form(form), tuple(map(str, keys)), value)
        except ValueError:
            pass
        raise ValueError("not the note of a ZooKeeper node")

    @property
    def emptied(self) -> bytes | None:
        """The data to write when no key is left; for a node that was absent, only if it cannot be deleted."""
        return {Form.NULL: None, Form.EMPTY: b""}.get(self.form, EMPTY_NODE)


def note_of(entity: Entity, key: QuotaKey, data: bytes | None, *, exists: bool) -> NodeNote:
    """The note of a node that holds `data`.

    Args:
        entity: entity of the node, also for errors.
        key: the quota to restore later.
        data: data of the node; None if it has none.
        exists: whether the node exists.

    Raises:
        ValueError: writing it back would not give the same bytes, or brokers do not read the whole node.
    """
    config = config_to_change(entity, data)
    if data and encoded_config(config) != data:
        msg = f"{entity}: its node is not written as Kafka writes it (blanks, other fields): write it anew first"
        raise ValueError(msg)
    found = decode_quota_node(data)
    if found.problem is not None:
        raise _refusal(entity, found.problem)
    form = Form.CONFIG if data else Form.NULL if data is None else Form.EMPTY
    return NodeNote(form if exists else Form.ABSENT, tuple(config), config.get(key.value))


def with_noted(entity: Entity, key: QuotaKey, data: bytes | None, note: NodeNote) -> bytes | None:
    """The data of a node with one quota restored from a note, at its old place among the keys; all other keys stay.

    Args:
        entity: entity of the node, also for errors.
        key: the quota to restore.
        data: present data of the node; None if it has none.
        note: the note from before the quota was changed, by `note_of`.

    Returns:
        The new data; None if no key is left: see `NodeNote.emptied`.

    Raises:
        ValueError: something in the node would be lost.
    """
    config = config_to_change(entity, data)
    if note.text is None:
        config.pop(key.value, None)
    elif key.value in config:
        config[key.value] = note.text
    else:
        names = list(config)
        place = _place(names, key.value, note.keys)
        pairs = [*config.items()]
        config = dict([*pairs[:place], (key.value, note.text), *pairs[place:]])
    return encoded_config(config) if config else None


def _place(names: Sequence[str], key: str, noted: Sequence[str]) -> int:
    """Index for the key: after the nearest name left of those before it, else before the nearest of those after it."""
    at = noted.index(key) if key in noted else len(noted)
    before = [name for name in noted[:at] if name in names]
    if before:
        return names.index(before[-1]) + 1
    behind = [name for name in noted[at + 1 :] if name in names]
    return names.index(behind[0]) if behind else len(names)
