"""`quotas.yaml`: quotas written down with their validity, where ZooKeeper cannot be read.

The file is a list of `{user, client_id, type, value, from_ms, to_ms}`. A null part is not in the entity and
`<default>` is the default entity; names are raw, not sanitised. `from_ms` null means always, `to_ms` null
until further notice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from kquota_spark.errors import UserError
from kquota_spark.model.entities import DEFAULT, Entity, Name
from kquota_spark.model.quota_types import QuotaKey
from kquota_spark.model.rules import BEGINNING_MS, END_MS, QuotaChange

_MAX_BYTES = 16_000_000
_KEYS = ("user", "client_id", "type", "value", "from_ms", "to_ms")
_BYTE_RATES = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)


@dataclass(frozen=True, slots=True)
class _Item:
    index: int
    entity: Entity
    key: QuotaKey
    value: float
    from_ms: int
    to_ms: int | None


def read_quota_file(path: Path) -> list[QuotaChange]:
    """Read a file of quotas; `stretches` turns the result into a timeline.

    The version of a change is its time, so it differs wherever the quotas of an entity do.

    Raises:
        UserError: the file cannot be read, or one line per problem found in it.
    """
    problems: list[str] = []
    items = []
    for index, node in enumerate(_entries(path)):
        item = _read_item(index, node, problems)
        if item is not None:
            items.append(item)
    changes = _changes(items, problems)
    if problems:
        raise UserError("\n".join(f"{path}: {problem}" for problem in problems))
    return changes


def _entries(path: Path) -> list[yaml.Node]:
    """The nodes of the list. Nodes and not values, for the duplicate keys that values would hide."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _error(path, f"larger than {_MAX_BYTES} bytes, expected a list of quotas")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not YAML in UTF-8"
        raise _error(path, f"{where}{problem}") from error
    if root is None:
        return []
    if not isinstance(root, yaml.SequenceNode):
        raise _error(path, "not a list, expected a list of quotas such as - {user: alice, ...}")
    return list(root.value)


def _error(path: Path, problem: str) -> UserError:
    return UserError(f"{path}: {problem}")


def _read_item(index: int, node: yaml.Node, problems: list[str]) -> _Item | None:
    """One entry, or None if it has problems, which are appended."""
    found: list[str] = []
    given = _fields(index, node, found)
    where = f"[{index}]"
    user = _name(given, "user", where, found)
    client_id = _name(given, "client_id", where, found)
    key = _key(given, where, found)
    value = _value(given, key, where, found)
    from_ms = _time_ms(given, "from_ms", where, found)
    to_ms = _time_ms(given, "to_ms", where, found)
    if user is None and client_id is None and not found:
        found.append(f"{where}.user: neither user nor client_id is given, expected at least one")
    start_ms = BEGINNING_MS if from_ms is None else from_ms
    if to_ms is not None and to_ms <= start_ms and not found:
        found.append(f"{where}.to_ms: {to_ms}, expected a time after from_ms")
    problems.extend(found)
    if found or key is None or value is None:
        return None
    return _Item(index, Entity(user, client_id), key, value, start_ms, to_ms)


def _fields(index: int, node: yaml.Node, problems: list[str]) -> dict[str, Any]:
    """The entry's scalars by key; only scalars are ever built, so aliases cannot blow up."""
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
            problems.append(f"[{index}].{key}: stands here twice, expected once")
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
        # The constructor is only for this node; no tag outside the safe ones is known to it.
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node  # matches no expected type, so the check of its key reports it


def _name(given: dict[str, Any], part: str, where: str, problems: list[str]) -> Name:
    name = given.get(part)
    if name is None:
        return None
    if isinstance(name, str) and name:
        return DEFAULT if name == DEFAULT.value else name
    problems.append(f"{where}.{part}: {_shown(name)}, expected a name in quotes, <default>, or null")
    return None


def _key(given: dict[str, Any], where: str, problems: list[str]) -> QuotaKey | None:
    if "type" not in given:
        return None
    try:
        return QuotaKey(given["type"])
    except ValueError:
        expected = ", ".join(key.value for key in QuotaKey)
        problems.append(f"{where}.type: {_shown(given['type'])}, expected one of {expected}")
        return None


def _value(given: dict[str, Any], key: QuotaKey | None, where: str, problems: list[str]) -> float | None:
    if "value" not in given:
        return None
    value = given["value"]
    if isinstance(value, str):
        # `1e6` is a text in YAML 1.1, and ZooKeeper's values are texts anyway.
        try:
            value = float(value)
        except ValueError:
            value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (key in _BYTE_RATES and value != int(value)):
        expected = "a whole number of bytes per second" if key in _BYTE_RATES else "a number"
        problems.append(f"{where}.value: {_shown(given['value'])}, expected {expected}, 0 or more")
        return None
    return float(value)


def _time_ms(given: dict[str, Any], part: str, where: str, problems: list[str]) -> int | None:
    time_ms = given.get(part)
    if time_ms is None:
        return None
    if isinstance(time_ms, int) and not isinstance(time_ms, bool) and 0 <= time_ms <= END_MS:
        return time_ms
    problems.append(f"{where}.{part}: {_shown(time_ms)}, expected epoch milliseconds or null")
    return None


def _changes(items: Iterable[_Item], problems: list[str]) -> list[QuotaChange]:
    by_key: dict[tuple[Entity, QuotaKey], list[_Item]] = {}
    for item in items:
        by_key.setdefault((item.entity, item.key), []).append(item)
    changes: list[QuotaChange] = []
    for (entity, key), stretch in by_key.items():
        stretch.sort(key=lambda item: item.from_ms)
        for earlier, later in pairwise(stretch):
            if earlier.to_ms is None or later.from_ms < earlier.to_ms:
                problems.append(
                    f"[{later.index}].from_ms: overlaps [{earlier.index}] of {entity} {key.value}, "
                    "expected one value at a time"
                )
        changes.extend(_changes_of(stretch))
    return sorted(changes, key=lambda change: (change.changed_at_ms, str(change.entity), change.key.value))


def _changes_of(stretch: list[_Item]) -> list[QuotaChange]:
    changes: list[QuotaChange] = []
    previous: float | None = None
    for item, following in zip(stretch, [*stretch[1:], None], strict=True):
        if item.value != previous:
            changes.append(
                QuotaChange(item.entity, item.key, item.value, previous, item.from_ms, item.from_ms)
            )
        previous = item.value
        if item.to_ms is not None and (following is None or following.from_ms > item.to_ms):
            changes.append(QuotaChange(item.entity, item.key, None, previous, item.to_ms, item.to_ms))
            previous = None
    return changes


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(getattr(value, "value", value))[:60]
