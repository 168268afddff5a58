"""What a direct change of quotas writes into ZooKeeper: the data of entity nodes, and change notifications.

Before one of its quotas is changed a node is noted, to restore it to the byte. A note holds names of keys and the text
of the one quota; no other value, because a user's node holds the login too.

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
"""What brokers before 3.5 leave of a node without keys, and newer ones above child nodes."""

CHANGE_NODE_PREFIX = "config_change_"
"""Name, below /config/changes, of the sequential node that makes brokers read an entity's node again."""

_LONG_LIMIT = 2**63
_INT_LIMIT = 2**31


def with_quotas(entity: AnyEntity, data: bytes | None, values: Mapping[AnyKey, float | None]) -> bytes | None:
    """The data of an entity's node with some quotas changed; all its other keys stay.

    Args:
        entity: whose node it is.
        data: what the node holds; None or empty where it holds nothing or is not there.
        values: the quotas to set, or None to remove one.

    Returns:
        None where no key is left: brokers since 3.5 delete such a node unless it has children (KAFKA-14285),
        otherwise EMPTY_NODE stays.

    Raises:
        ValueError: brokers would not read back what was asked, or something in the node would be lost.
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
    """The config of an entity's node, all keys in their order; empty where the node holds nothing or is not there.

    Raises:
        ValueError: it holds something that writing it anew would lose, or that brokers refuse to write there.
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
            # Java's largest long has no double of its own: read and written back it would be one too large.
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
    """What a node was: brokers read the first three alike, as no quotas."""

    ABSENT = "absent"
    NULL = "null"
    EMPTY = "empty"
    CONFIG = "config"


@dataclass(frozen=True, slots=True)
class NodeNote:
    """A node as far as one quota of it goes."""

    form: Form
    keys: tuple[str, ...]
    """Names of all keys in their order."""
    text: str | None
    """Of the quota's value; None where the key is not set."""

    def to_json(self) -> str:
        """One line, the same for the same note."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> NodeNote:
        """The way back; ValueError if the text is no note of a node."""
        try:
            match json.loads(text):
                case {"form": str(form), "keys": list(keys), "text": str() | None as value}:
                    return cls(Form(form), tuple(map(str, keys)), value)
        except ValueError:
            pass
        raise ValueError("not the note of a ZooKeeper node")

    @property
    def emptied(self) -> bytes | None:
        """The data of the node when it holds no key any more; of one that was absent, if it cannot be deleted."""
        return {Form.NULL: None, Form.EMPTY: b""}.get(self.form, EMPTY_NODE)


def note_of(entity: Entity, key: QuotaKey, data: bytes | None, *, exists: bool) -> NodeNote:
    """The note of a node that holds `data`.

    Args:
        entity: whose node it is, for errors.
        key: the quota to be put back later.
        data: of the node; None where it has none.
        exists: whether there is a node.

    Raises:
        ValueError: writing it back would not give the same bytes, or brokers do not read the node whole.
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
    """The data of a node with a quota as it was noted, at its old place among the keys; all other keys stay.

    Args:
        entity: whose node it is, for errors.
        key: the quota to put back.
        data: of the node now; None where it has none.
        note: of the node before the quota was changed, by `note_of`.

    Returns:
        None where no key is left: see `NodeNote.emptied`.

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
    """Behind the nearest name that stood before the key and still does, else in front of the nearest behind it."""
    at = noted.index(key) if key in noted else len(noted)
    before = [name for name in noted[:at] if name in names]
    if before:
        return names.index(before[-1]) + 1
    behind = [name for name in noted[at + 1 :] if name in names]
    return names.index(behind[0]) if behind else len(names)
