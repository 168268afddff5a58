"""The JSON of kfk-quotas (kafka-cli): one compact line, an array of entities with their constraints.

`{"clientEntity": {"user": {"user": "alice"}, "client": {"client-id": "app"}}, "constraints": {...}}`
A default is written `{"default": true}` for users and ips, and `{"default": "true"}` for client ids. Both are read
for all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kquota_spark.formats.exchange.checks import Reading, checked_text, parts_of, shown, writable
from kquota_spark.formats.exchange.documents import read_json
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

_PARTS = {"user": "user", "client": "client-id", "ip": "ip"}
"""kfk-quotas' names of the parts of an entity, with the Admin API type that it uses inside each part."""
_NAMES = {kind: part for part, kind in _PARTS.items()}
_DEFAULTS = {"user": True, "client-id": "true", "ip": True}
"""Values of `default` by type, as kfk-quotas writes them."""
_KEYS: tuple[AnyKey, ...] = (*QuotaKey, *IpQuotaKey)
"""Keys in the order of kfk-quotas, which does not support controller_mutation_rate."""


def write(quotas: QuotaSet) -> str:
    """The array on one line, entities by level and name; ValueError for a name or value that no format can hold."""
    return as_line(quotas, [entity for entity, _ in writable(quotas)])


def as_line(quotas: QuotaSet, entities: Sequence[AnyEntity]) -> str:
    """The array on one line, these entities in this order.

    Any value that a cluster may hold is accepted, except one that is not a JSON number (ValueError).
    """
    entries = [
        {"clientEntity": _entity_json(entity), "constraints": _constraints(entity, quotas[entity])}
        for entity in entities
    ]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False) + "\n"


def read(text: str) -> QuotaSet:
    """The quotas of an array, entries of one entity merged; ValueError with one line per problem and its place."""
    entries = read_json(checked_text(text))
    if not isinstance(entries, list):
        raise ValueError(f"{shown(entries)}, expected an array of entities with constraints")
    reading = Reading()
    for index, entry in enumerate(entries):
        _take(entry, f"[{index}]", reading)
    return reading.quotas()


def _entity_json(entity: AnyEntity) -> dict[str, Any]:
    return {
        _NAMES[kind]: {"default": _DEFAULTS[kind]} if name is DEFAULT else {kind: name}
        for kind, name in parts_of(entity)
    }


def _constraints(entity: AnyEntity, values: Mapping[AnyKey, float]) -> dict[str, float]:
    for key, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{entity}: {key.value} {value}: JSON has no such number")
    return {key.value: float(values[key]) for key in _KEYS if key in values}


def _take(entry: Any, where: str, reading: Reading) -> None:
    """Read one entry of the array."""
    if not isinstance(entry, dict) or not {"clientEntity"} <= entry.keys() <= {"clientEntity", "constraints"}:
        reading.problem(where, f"{shown(entry)}, expected clientEntity and constraints")
        return
    constraints = entry.get("constraints", {})
    if not isinstance(constraints, dict):
        reading.problem(f"{where}.constraints", f"{shown(constraints)}, expected a mapping")
        return
    try:
        parts = _parts(entry["clientEntity"])
    except ValueError as error:
        reading.problem(f"{where}.clientEntity", str(error))
        return
    entity = reading.entity(f"{where}.clientEntity", parts)
    if entity is not None:
        for name, value in constraints.items():
            reading.add(f"{where}.constraints", entity, name, value)


def _parts(found: Any) -> list[tuple[str, str | Default]]:
    if not isinstance(found, dict) or not found or not found.keys() <= _PARTS.keys():
        raise ValueError(f"{shown(found)}, expected {', '.join(_PARTS)}")
    return [(_PARTS[part], _name(part, value)) for part, value in found.items()]


def _name(part: str, found: Any) -> str | Default:
    kind = _PARTS[part]
    match found:
        case {"default": True | "true", **rest} if not rest:
            return DEFAULT
        case {**rest} if rest.keys() == {kind} and isinstance(rest[kind], str):
            return str(rest[kind])
    raise ValueError(f'{part}: expected {{"{kind}": NAME}} or {{"default": true}}')
