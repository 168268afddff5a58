"""The JSON of kfk-quotas (kafka-cli): one compact line, an array of entities with their constraints.

`{"clientEntity": {"user": {"user": "alice"}, "client": {"client-id": "app"}}, "constraints": {...}}`;
a default is `{"default": true}` for users and ips, and `{"default": "true"}` for client ids. Both are read anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kquota_spark.model.entities import DEFAULT, AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quota_set import QuotaSet, in_order
from kquota_spark.model.quota_types import AnyKey, IpQuotaKey, QuotaKey, parse_key

_NAME_FIELDS = {"user": "user", "client": "client-id", "ip": "ip"}
_DEFAULTS = {"user": True, "client": "true", "ip": True}
"""As kfk-quotas writes them."""
_KEY_ORDER: Sequence[AnyKey] = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
    IpQuotaKey.CONNECTION_CREATION_RATE,
)
_LONGEST_SHOWN = 60


def write(quotas: QuotaSet) -> str:
    """The array on one line, with a line feed; entities by level and name.

    Raises:
        ValueError: a value that JSON has no number for.
    """
    return as_line(quotas, in_order(quotas))


def as_line(quotas: QuotaSet, order: Sequence[AnyEntity]) -> str:
    """As `write`, in a given order.

    Raises:
        ValueError: a value that JSON has no number for.
    """
    entries = [
        {"clientEntity": _entity_json(entity), "constraints": _constraints(entity, quotas[entity])}
        for entity in order
    ]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False) + "\n"


def read(text: str) -> QuotaSet:
    """The quotas of an array; entries of one entity are added up.

    Raises:
        ValueError: one line a problem, each with its place, e.g. `[3].constraints.producer_byte_rate`.
    """
    try:
        entries = json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        msg = f"not JSON: {error}"
        raise ValueError(msg) from None
    if not isinstance(entries, list):
        msg = f"{_shown(entries)}, expected an array of entities with constraints"
        raise ValueError(msg)
    problems: list[str] = []
    quotas: dict[AnyEntity, dict[AnyKey, float]] = {}
    for index, entry in enumerate(entries):
        _take(entry, f"[{index}]", quotas, problems)
    if problems:
        raise ValueError("\n".join(problems))
    return quotas


def _entity_json(entity: AnyEntity) -> dict[str, Any]:
    if isinstance(entity, IpEntity):
        parts: Mapping[str, Name] = {"ip": entity.ip}
    else:
        parts = {"user": entity.user, "client": entity.client_id}
    return {
        part: {"default": _DEFAULTS[part]} if name is DEFAULT else {_NAME_FIELDS[part]: name}
        for part, name in parts.items()
        if name is not None
    }


def _constraints(entity: AnyEntity, values: Mapping[AnyKey, float]) -> dict[str, float]:
    for key, value in values.items():
        if not math.isfinite(value):
            msg = f"{entity}: {key.value} {value}: JSON has no such number"
            raise ValueError(msg)
    return {key.value: float(values[key]) for key in _KEY_ORDER if key in values}


def _take(entry: Any, where: str, quotas: dict[AnyEntity, dict[AnyKey, float]], problems: list[str]) -> None:
    """Add one entry of the array."""
    if not isinstance(entry, dict) or not {"clientEntity"} <= entry.keys() <= {"clientEntity", "constraints"}:
        problems.append(f"{where}: {_shown(entry)}, expected clientEntity and constraints")
        return
    entity = _entity(entry["clientEntity"], f"{where}.clientEntity", problems)
    constraints = entry.get("constraints", {})
    if not isinstance(constraints, dict):
        problems.append(f"{where}.constraints: {_shown(constraints)}, expected an object")
        return
    for name, value in constraints.items():
        place = f"{where}.constraints.{name}"
        try:
            key = parse_key(name)
        except ValueError:
            problems.append(f"{place}: expected one of {', '.join(key.value for key in _KEY_ORDER)}")
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            problems.append(f"{place}: {_shown(value)}, expected a number")
        elif entity is not None:
            _put(quotas, entity, key, float(value), place, problems)


def _put(
    quotas: dict[AnyEntity, dict[AnyKey, float]],
    entity: AnyEntity,
    key: AnyKey,
    value: float,
    place: str,
    problems: list[str],
) -> None:
    if isinstance(key, IpQuotaKey) != isinstance(entity, IpEntity):
        problems.append(f"{place}: no quota of {entity}")
    elif key in quotas.get(entity, {}):
        problems.append(f"{place}: stands twice for {entity}")
    else:
        quotas.setdefault(entity, {})[key] = value


def _entity(found: Any, where: str, problems: list[str]) -> AnyEntity | None:
    if not isinstance(found, dict) or not found.keys() <= _NAME_FIELDS.keys() or not found:
        problems.append(f"{where}: {_shown(found)}, expected user, client or ip")
        return None
    names: dict[str, str | Default] = {}
    for part, value in found.items():
        name = _name(part, value, f"{where}.{part}", problems)
        if name is None:
            return None
        names[part] = name
    if "ip" not in names:
        return Entity(names.get("user"), names.get("client"))
    if len(names) > 1:
        problems.append(f"{where}: an ip stands alone")
        return None
    try:
        return IpEntity(names["ip"])
    except ValueError as error:
        problems.append(f"{where}.ip: {error}")
        return None


def _name(part: str, found: Any, where: str, problems: list[str]) -> str | Default | None:
    field = _NAME_FIELDS[part]
    match found:
        case {"default": True | "true", **rest} if not rest:
            return DEFAULT
        case {**rest} if rest.keys() == {field} and isinstance(rest[field], str):
            return str(rest[field])
    problems.append(f'{where}: {_shown(found)}, expected {{"{field}": NAME}} or {{"default": true}}')
    return None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a key stands twice in one object"
        raise ValueError(msg)
    return found


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
