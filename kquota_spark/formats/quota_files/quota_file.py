"""`quotas.yaml`: quotas with their periods of validity, for clusters where ZooKeeper cannot be read.

The file is a list of `{user, client_id, type, value, from_ms, to_ms}`; limits of ips have `ip` instead of a user and
a client id. A part that is null is absent from the entity, and `<default>` is the default entity. Names are raw, not
sanitised. `from_ms` null means since ever, `to_ms` null means until further notice. Values are those that brokers can
hold, in Kafka's units, or with a unit: `2MB/s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from kquota_spark.bounded_yaml import BoundedLoader, is_decimal
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_values import number_with_unit
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.ip_quotas import by_address
from kquota_spark.model.quotas.quota_types import BYTE_RATES, IP_QUOTA_KEY, AnyKey, QuotaKey, parse_key
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, QuotaChange

_MAX_BYTES = 16_000_000
_WHOLE_TYPES = {
    **{key.value: ("bytes per second", 2**63) for key in BYTE_RATES},
    IP_QUOTA_KEY: ("connections per second", 2**31 - 1),
}
"""Types with whole numbers as values, with their units and largest values.

Brokers hold a long for byte rates and an int for ips. The largest long is 2^63 as a double.
"""
_KEYS = ("user", "client_id", "ip", "type", "value", "from_ms", "to_ms")


@dataclass(frozen=True, slots=True)
class IpLimit:
    """A limit of an ip, in connections per second, from `from_ms` until `to_ms` (exclusive); None means no end."""

    entity: IpEntity
    connections_per_s: int
    from_ms: int
    to_ms: int | None


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """The content of a quota file; `model.quotas.rules` turns its changes into a timeline.

    `changes` are those of users and client ids; `ip_changes` are the `ip_limits` as edits, by address.
    """

    changes: list[QuotaChange]
    ip_limits: list[IpLimit]
    ip_changes: list[QuotaChange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a quota file; `index` is its place in the file."""

    entity: AnyEntity
    type: str
    value: float
    from_ms: int
    to_ms: int | None
    index: int = 0


def read_quota_file(path: Path) -> list[QuotaChange]:
    """The changes of users and client ids in a file: `read_quotas` without the limits of ips."""
    return read_quotas(path).changes


def read_quotas(path: Path) -> QuotaFile:
    """Read a quota file; UserError if it cannot be read, or with one line per problem in it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: larger than {_MAX_BYTES} bytes, expected a list of quotas")
        return parse_quotas(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not YAML in UTF-8") from error
    except ValueError as error:
        raise UserError("\n".join(f"{path}: {problem}" for problem in str(error).split("\n"))) from error


def parse_quotas(text: str) -> QuotaFile:
    """The quotas in the text of a file.

    The version of a change is its time, so different quotas of an entity have different versions.

    Raises:
        ValueError: one line per problem.
    """
    problems: list[str] = []
    items = []
    for index, node in enumerate(_entries(text)):
        item = _read_item(index, node, problems)
        if item is not None:
            items.append(item)
    in_order = _in_order(items, problems)
    if problems:
        raise ValueError("\n".join(problems))
    changes = sorted(
        (change for items in in_order for change in _changes_of(items)),
        key=lambda change: (change.changed_at_ms, str(change.entity), change.key.value),
    )
    limits = [
        IpLimit(item.entity, int(item.value), item.from_ms, item.to_ms)
        for items in in_order
        for item in items
        if isinstance(item.entity, IpEntity)
    ]
    limits.sort(key=lambda limit: (limit.from_ms, str(limit.entity)))
    of_users = [change for change in changes if not isinstance(change.entity, IpEntity)]
    of_ips = [change for change in changes if isinstance(change.entity, IpEntity)]
    return QuotaFile(of_users, limits, of_ips)


def _entries(text: str) -> list[yaml.Node]:
    """The YAML nodes of the list: values would hide duplicate keys."""
    try:
        root = yaml.compose(text, Loader=BoundedLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not YAML in UTF-8"
        raise ValueError(f"{where}{problem}") from error
    if root is None:
        return []
    if not isinstance(root, yaml.SequenceNode):
        raise ValueError("not a list, expected a list of quotas such as - {user: alice, ...}")
    return list(root.value)


def _read_item(index: int, node: yaml.Node, problems: list[str]) -> Entry | None:
    """One entry; None if it has problems, which are appended to `problems`."""
    found: list[str] = []
    given = _fields(index, node, found)
    where = f"[{index}]"
    entity = _entity(given, where, found)
    kind = _type(given, where, found)
    value = _value(given, kind, where, found)
    from_ms = _time_ms(given, "from_ms", where, found)
    to_ms = _time_ms(given, "to_ms", where, found)
    if entity is None and not found:
        found.append(f"{where}.user: none of user, client_id and ip is given, expected at least one")
    start_ms = BEGINNING_MS if from_ms is None else from_ms
    if to_ms is not None and to_ms <= start_ms and not found:
        found.append(f"{where}.to_ms: {to_ms}, expected a time after from_ms")
    problems.extend(found)
    if found or entity is None or kind is None or value is None:
        return None
    return Entry(entity, kind, value, start_ms, to_ms, index)


def _fields(index: int, node: yaml.Node, problems: list[str]) -> dict[str, Any]:
    """The entry's scalars by key; only scalars are ever built, so aliases cannot exhaust memory."""
    if not isinstance(node, yaml.MappingNode):
        problems.append(f"[{index}]: not a mapping, expected keys {', '.join(_KEYS)}")
        return {}
    given: dict[str, Any] = {}
    seen: set[str] = set()
    for key_node, value_node in node.value:
        key = str(key_node.value)[:60]
        if key not in _KEYS:
            problems.append(f"[{index}].{key}: unknown key, expected one of {', '.join(_KEYS)}")
        elif key in seen:
            problems.append(f"[{index}].{key}: is given twice, expected once")
        elif not isinstance(value_node, yaml.ScalarNode):
            problems.append(f"[{index}].{key}: a list or mapping, expected one value")
        else:
            given[key] = _scalar(value_node)
        seen.add(key)
    missing = [key for key in ("type", "value") if key not in seen]
    problems.extend(f"[{index}].{key}: missing, expected a value" for key in missing)
    return given


def _scalar(node: yaml.ScalarNode) -> Any:
    try:
        # The constructor is only for this node, and supports only safe tags.
        return BoundedLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node  # matches no expected type, so the check of its key reports it


def _entity(given: dict[str, Any], where: str, problems: list[str]) -> AnyEntity | None:
    user, client_id, ip = (_name(given, part, where, problems) for part in ("user", "client_id", "ip"))
    if ip is None:
        return None if user is None and client_id is None else Entity(user, client_id)
    if user is not None or client_id is not None:
        problems.append(f"{where}.ip: {_shown(given['ip'])}, expected no ip beside a user or client_id")
        return None
    try:
        return IpEntity(ip)
    except ValueError as error:
        problems.append(f"{where}.ip: {error}, expected an address, <default>, or null")
        return None


def _name(given: dict[str, Any], part: str, where: str, problems: list[str]) -> Name:
    name = given.get(part)
    if name is None:
        return None
    if isinstance(name, str) and name:
        return DEFAULT if name == DEFAULT.value else name
    problems.append(f"{where}.{part}: {_shown(name)}, expected a name in quotes, <default>, or null")
    return None


def _type(given: dict[str, Any], where: str, problems: list[str]) -> str | None:
    if "type" not in given:
        return None
    kind = given["type"]
    types = [IP_QUOTA_KEY] if given.get("ip") is not None else [key.value for key in QuotaKey]
    if isinstance(kind, str) and kind in types:
        return kind
    one_of = "one of " if len(types) > 1 else ""
    problems.append(f"{where}.type: {_shown(kind)}, expected {one_of}{', '.join(types)}")
    return None


def _value(given: dict[str, Any], kind: str | None, where: str, problems: list[str]) -> float | None:
    if "value" not in given:
        return None
    try:
        if kind is not None:
            return quota_value(parse_key(kind), given["value"])
        expected = expected_value(None, finite_number(given["value"]))
    except ValueError as error:
        expected = str(error)
    if expected is not None:
        problems.append(f"{where}.value: {_shown(given['value'])}, expected {expected}")
    return None


def _time_ms(given: dict[str, Any], part: str, where: str, problems: list[str]) -> int | None:
    time_ms = given.get(part)
    if time_ms is None:
        return None
    if isinstance(time_ms, int) and not isinstance(time_ms, bool) and 0 <= time_ms <= END_MS:
        return time_ms
    problems.append(f"{where}.{part}: {_shown(time_ms)}, expected epoch milliseconds or null")
    return None


def _in_order(items: Iterable[Entry], problems: list[str]) -> list[list[Entry]]:
    """The entries of each entity and type, oldest first; overlaps are appended to `problems`."""
    together: dict[tuple[AnyEntity, str], list[Entry]] = {}
    for item in items:
        entity = by_address(item.entity) if isinstance(item.entity, IpEntity) else item.entity
        together.setdefault((entity, item.type), []).append(item)
    for found in together.values():
        found.sort(key=lambda item: item.from_ms)
        for earlier, later in pairwise(found):
            if earlier.to_ms is None or later.from_ms < earlier.to_ms:
                problems.append(
                    f"[{later.index}].from_ms: overlaps [{earlier.index}] of {earlier.entity} {earlier.type}, "
                    "expected one value at a time"
                )
    return list(together.values())


def _changes_of(items: list[Entry]) -> Iterator[QuotaChange]:
    previous: float | None = None
    for item, following in zip(items, [*items[1:], None], strict=True):
        key = parse_key(item.type)
        entity = by_address(item.entity) if isinstance(item.entity, IpEntity) else item.entity
        if item.value != previous:
            yield QuotaChange(entity, key, item.value, previous, item.from_ms, item.from_ms)
        previous = item.value
        if item.to_ms is not None and (following is None or following.from_ms > item.to_ms):
            yield QuotaChange(entity, key, None, previous, item.to_ms, item.to_ms)
            previous = None


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(getattr(value, "value", value))[:60]


def finite_number(value: Any) -> float | None:
    """A finite number, from a number or its text; else None.

    `1e6` is a text in YAML 1.1, and ZooKeeper's values are always texts.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not is_decimal(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def quota_value(key: AnyKey, given: Any, *, is_above_zero: bool = False) -> float:
    """A value that brokers can hold, in Kafka's unit.

    Args:
        key: the quota that it is for.
        given: a number, its text, or a number with a unit of the key: `2MB/s`, `200%`, `10/s`.
        is_above_zero: refuse 0, as KRaft does. Files of clusters with ZooKeeper may have it.

    Raises:
        ValueError: any other value; the text names what was expected.
    """
    number = finite_number(given)
    if number is None and isinstance(given, str):
        number = number_with_unit(key, given)
    is_zero = is_above_zero and number == 0
    expected = expected_value(key.value, None if is_zero else number)
    if number is None or expected is not None:
        raise ValueError((expected or "").replace("0 or more", "above 0" if is_above_zero else "0 or more"))
    return number


def expected_value(kind: str | None, value: float | None) -> str | None:
    """The value that was expected, e.g. `a number, 0 or more`; None if the value is valid.

    `kind` is Kafka's key, or None if it is not known. `value` is None if it is not a finite number.
    """
    unit, largest = _WHOLE_TYPES.get(kind or "", ("", math.inf))
    what = f"a whole number of {unit}" if unit else "a number"
    if value is None or not math.isfinite(value) or value < 0 or (unit and value != int(value)):
        return f"{what}, 0 or more"
    return f"{what}, {largest} or less" if value > largest else None
