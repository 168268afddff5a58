"""What has to be noted of an entity's node before one of its quotas is changed, to restore it to the byte.

A note holds names of keys and the text of the one quota; no other value, because a user's node holds the login too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from kquota_spark.formats.znodes.nodes import decode_quota_node
from kquota_spark.formats.znodes.writes import EMPTY_NODE, config_to_change, encoded_config
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey


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
        """The way back.

        Raises:
            ValueError: the text is no note of a node.
        """
        try:
            match json.loads(text):
                case {"form": str(form), "keys": list(keys), "text": str() | None as value}:
                    return cls(Form(form), tuple(map(str, keys)), value)
        except ValueError:
            pass
        msg = "not the note of a ZooKeeper node"
        raise ValueError(msg)

    @property
    def emptied(self) -> bytes | None:
        """The data of the node when it holds no key any more; of one that was absent, if it cannot be deleted."""
        return {Form.NULL: None, Form.EMPTY: b""}.get(self.form, EMPTY_NODE)


def note_of(entity: Entity, key: QuotaKey, data: bytes | None, *, exists: bool) -> NodeNote:
    """The note of a node that holds `data`.

    Raises:
        ValueError: writing it back would not give the same bytes, or brokers do not read the node whole.
    """
    config = config_to_change(entity, data)
    if data and encoded_config(config) != data:
        msg = f"{entity}: its node is not written as Kafka writes it (blanks, other fields): write it anew first"
        raise ValueError(msg)
    found = decode_quota_node(data)
    if found.problem is not None:
        msg = f"{entity}: its node is left as it is: {found.problem}"
        raise ValueError(msg)
    form = Form.CONFIG if data else Form.NULL if data is None else Form.EMPTY
    return NodeNote(form if exists else Form.ABSENT, tuple(config), config.get(key.value))


def with_noted(entity: Entity, key: QuotaKey, data: bytes | None, note: NodeNote) -> bytes | None:
    """The data of a node with a quota as it was noted, at its old place among the keys; all other keys stay.

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
