"""Quota nodes of ZooKeeper: names and payloads, read like a broker reads them.

Source: Kafka 3.9 `ZkData.ConfigEntityZNode`, `Json`, `DecodeJson`, `QuotaConfigHandler`, `IpConfigHandler` and
`Sanitizer`. User nodes also hold SCRAM credentials. The decoders return only quota keys, and no problem text quotes a
payload.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Never

from kquota_spark.model.quotas.entities import AnyEntity, parse_entity
from kquota_spark.model.quotas.quota_types import BYTE_RATES, AnyKey, IpQuotaKey, QuotaKey

REQUIRED_ROOTS = ("users", "clients")
"""Nodes below /config, like all paths here; every Kafka creates them at its start."""
ROOTS = (*REQUIRED_ROOTS, "ips")
"""All roots. `ips` exists since Kafka 2.8; if it is missing, no address has a quota."""

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_JAVA_BLANKS = "".join(map(chr, range(33)))
INTEGER_KEYS = BYTE_RATES
"""Keys with whole numbers of 64 bits as values; other keys have doubles."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node's `config`; empty, with the reason in `problem`, if brokers read none.

    If `is_refused`, brokers do not read it as empty but fail, so a running broker keeps its earlier quotas.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class QuotaPayload:
    """The quotas that brokers read from a node's data.

    `left_alone` are the keys that a running broker does not update, because it failed on the node before them. It
    keeps their earlier values.
    """

    values: Mapping[AnyKey, float] = field(default_factory=dict)
    left_alone: frozenset[AnyKey] = frozenset()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Entities by node path, and the problems of paths that are not used for an entity."""

    entities: Mapping[str, AnyEntity]
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Node:
    """One user, client or ip node: its quotas, its mtime and its mzxid."""

    payload: QuotaPayload
    changed_at_ms: int
    version: int


@dataclass(frozen=True, slots=True)
class View:
    """All nodes at one moment, by path; `unreadable` contains the paths that could not be read, with the reasons.

    `listed_at` is the pzxid of each node with children: the zxid of the last child created or deleted.
    """

    nodes: Mapping[str, Node]
    listed_at: Mapping[str, int]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def is_hidden(self, path: str) -> bool:
        """Whether the node is at or below a path that cannot be read, so that it may exist."""
        return any(above in self.unreadable for above in [path, *_above(path)])

    def removed_at(self, path: str) -> int:
        """The zxid at which a deleted node was seen to be absent.

        A deleted node has no stat. The pzxid of its nearest ancestor is the zxid of its deletion, or that of a
        later edit beside it. 0 without an ancestor: Kafka never deletes a root.
        """
        return next((self.listed_at[above] for above in _above(path) if above in self.listed_at), 0)


def has_data(path: str) -> bool:
    """Whether a node can hold quotas: `users/U`, `clients/C`, `users/U/clients/C`, `ips/I`."""
    return path.count("/") % 2 == 1


def has_children(path: str) -> bool:
    """Whether a node can have nodes with quotas below it: the roots, `users/U`, `users/U/clients`."""
    return path in ROOTS or (path.startswith("users/") and path.count("/") < 3)


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def read_config(data: bytes | None) -> NodeConfig:
    """Read the data of a node; without data its config is empty, which is not a problem."""
    if not data:
        return NodeConfig()
    try:
        document = first_json(data)
    except ValueError:
        return NodeConfig(problem="not JSON: brokers read it as no quotas")
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        return NodeConfig(problem="no object config: brokers read it as no quotas")
    if not all(isinstance(value, str) for value in config.values()):
        refusal = "a value in config is not a JSON text: brokers refuse the node and keep the quotas they had"
        return NodeConfig(problem=refusal, is_refused=True)
    return NodeConfig(config)


def first_json(data: bytes) -> Any:
    """The first JSON value; text after it is ignored, as by Jackson's `readTree`. ValueError if there is none."""
    text = data.decode(json.detect_encoding(data))
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    try:
        return decoder.raw_decode(text.lstrip(" \t\r\n"))[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def decode_node(path: str, data: bytes | None) -> QuotaPayload:
    """Decode the data of any node that holds quotas."""
    if not path.startswith("ips/"):
        return decode_quota_node(data)
    node, key = read_config(data), IpQuotaKey.CONNECTION_CREATION_RATE
    if key.value not in node.config:
        return QuotaPayload(left_alone=frozenset([key] if node.is_refused else ()), problem=node.problem)
    limit = _integer(node.config[key.value], bits=32)
    if limit is None:
        refusal = f"{key.value} is not a whole number of 32 bits: brokers keep what they had"
        return QuotaPayload(left_alone=frozenset([key]), problem=refusal)
    return QuotaPayload({key: float(limit)})


def decode_quota_node(data: bytes | None) -> QuotaPayload:
    """Decode the data of a user or client node; foreign keys such as SCRAM credentials are dropped.

    A node without data, or with data that is not JSON, has no quotas. If a value is not a JSON text, brokers refuse
    the whole node. If one is not a number, they stop there and have applied the keys before it.
    """
    node = read_config(data)
    if node.is_refused:
        return QuotaPayload(left_alone=frozenset(QuotaKey), problem=node.problem)
    return _read_values(node.config) if node.problem is None else QuotaPayload(problem=node.problem)


def _read_values(config: Mapping[str, str]) -> QuotaPayload:
    values: dict[AnyKey, float] = {}
    order = list(QuotaKey)  # declared in the order in which QuotaConfigHandler updates its managers
    for index, key in enumerate(order):
        if key.value not in config:
            continue
        text = config[key.value]
        value = _integer(text, bits=64) if key in INTEGER_KEYS else _double(text)
        if value is None:
            kind = "a whole number of 64 bits" if key in INTEGER_KEYS else "a number"
            refusal = f"{key.value} is not {kind}: brokers keep what they had for it and the keys after it"
            return QuotaPayload(values, frozenset(order[index:]), refusal)
        values[key] = float(value)
    strange = [key.value for key, value in values.items() if not math.isfinite(value)]
    return QuotaPayload(values, problem=f"{strange[0]} is not finite" if strange else None)


def _integer(text: str, *, bits: int) -> int | None:
    """A number as Java's `Long.parseLong` or `Integer.parseInt` reads it: no blanks, no fraction, no exponent."""
    if _INTEGER.fullmatch(text) is None or len(text) > 100:
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _double(text: str) -> float | None:
    """A number as Java's `Double.parseDouble` reads it, without its hexadecimal form."""
    text = text.strip(_JAVA_BLANKS)
    return float(text.rstrip("fFdD")) if _DOUBLE.fullmatch(text) else None


def name_nodes(paths: Iterable[str]) -> NodeNames:
    """The entities of node paths below /config, e.g. `users/alice/clients/%3Cx%3E`.

    Brokers find users by their sanitised name, so they never find a user node in another spelling. Client ids are
    decoded when they are read, so another spelling works, unless it clashes with the proper one.
    """
    entities: dict[str, AnyEntity] = {}
    problems: dict[str, str] = {}
    taken: set[AnyEntity] = set()
    # Proper spellings first: if two nodes name one entity, the proper one counts.
    for path, entity in sorted(
        _parsed(paths, problems), key=lambda found: (found[0] != str(found[1]), found[0])
    ):
        proper = str(entity)
        if _user_node(path) != _user_node(proper):
            problems[path] = f"brokers never find this user: Kafka spells it {_short(proper)}"
        elif entity in taken:
            problems[path] = f"clashes with {_short(proper)}, which is the same client id"
        else:
            taken.add(entity)
            entities[path] = entity
    return NodeNames(entities, problems)


def _parsed(paths: Iterable[str], problems: dict[str, str]) -> list[tuple[str, AnyEntity]]:
    found = []
    for path in paths:
        try:
            found.append((path, parse_entity(path)))
        except ValueError as error:
            problems[path] = f"malformed node name: {_short(str(error))}"
    return found


def _user_node(path: str) -> str:
    return path.split("/")[1] if path.startswith("users/") else ""


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
