"""The checks of all formats: a text, with every problem in it, and quotas before they are written.

A file with any problem is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from kquota_spark.formats.quota_files.quota_file import expected_value, finite_number
from kquota_spark.model.quotas import quota_set
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_set import EntityType, QuotaSet, in_order
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey, parse_key

Parts = tuple[tuple[str, str | Default], ...]
"""The parts of an entity with the types of the Admin API, `user` first."""
MOST_CHARACTERS = 16_000_000
_MOST_PROBLEMS = 50
_TYPES = tuple(kind.value for kind in EntityType)


def checked_text(text: str) -> str:
    """The text of a file, without a byte order mark; ValueError if it is too long or binary."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"longer than {MOST_CHARACTERS:,} characters, expected quotas")
    if "\0" in text:
        msg = f"line {text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL character, expected text"
        raise ValueError(msg)
    return text.removeprefix("\ufeff")


class Reading:
    """The quotas read from a file so far, and its problems; every problem names its place."""

    def __init__(self) -> None:
        self._quotas: dict[AnyEntity, dict[AnyKey, float]] = {}
        self._problems: list[str] = []
        self._count = 0

    def problem(self, where: str, problem: str) -> None:
        """Record a problem; beyond fifty, problems are only counted."""
        self._count += 1
        if self._count <= _MOST_PROBLEMS:
            self._problems.append(f"{where}: {problem}".replace("\n", " "))

    def entity(self, where: str, parts: Iterable[tuple[str, Name]]) -> AnyEntity | None:
        """The entity of parts, each a type of the Admin API with a raw name or the default.

        If the parts are not an entity, it records the problem and returns None.
        """
        try:
            return _entity(parts)
        except ValueError as error:
            self.problem(where, str(error))
            return None

    def add(self, where: str, entity: AnyEntity, key: str, value: Any) -> None:
        """Add one value, or record why it is refused.

        Args:
            where: the place in the document, for errors.
            entity: the entity that has the quota.
            key: Kafka's own key, e.g. `producer_byte_rate`.
            value: a number in Kafka's unit, or its text.
        """
        try:
            number = _number(entity, key, value)
        except ValueError as error:
            self.problem(where, str(error))
            return
        values = self._quotas.setdefault(entity, {})
        if parse_key(key) in values:
            self.problem(where, f"{entity} {key} is given twice, expected once")
        values[parse_key(key)] = number

    def quotas(self) -> QuotaSet:
        """All quotas that were read; ValueError with one line per problem."""
        if self._count > _MOST_PROBLEMS:
            self._problems[_MOST_PROBLEMS:] = [f"... and {self._count - _MOST_PROBLEMS:,} more problems"]
        if self._problems:
            raise ValueError("\n".join(self._problems))
        return self._quotas


def _entity(parts: Iterable[tuple[str, Name]]) -> AnyEntity:
    given: dict[str, str | Default] = {}
    for kind, name in parts:
        if kind not in _TYPES:
            raise ValueError(f"{shown(kind)}, expected one of {', '.join(_TYPES)}")
        if kind in given:
            raise ValueError(f"{kind} is given twice, expected once")
        if name is None or (wrong := name_problem(name)) is not None:
            raise ValueError(f"{kind} {shown(name)}: {'expected a name' if name is None else wrong}")
        given[kind] = name
    if "ip" not in given:
        return Entity(given.get("user"), given.get("client-id"))
    if len(given) > 1:
        raise ValueError("an ip beside a user or client-id, expected it alone")
    return IpEntity(given["ip"])


def _number(entity: AnyEntity, key: str, value: Any) -> float:
    keys = [key.value for key in (IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey)]
    if key not in keys:
        raise ValueError(f"{shown(key)}, expected {'one of ' if len(keys) > 1 else ''}{', '.join(keys)}")
    number = finite_number(value)
    expected = expected_value(key, number)
    if number is None or expected is not None:
        raise ValueError(f"{key} {shown(value)}, expected {expected}")
    return number


def name_problem(name: Name) -> str | None:
    """Why this cannot be a name of a client; None if it can."""
    if name == "":
        return "expected a name"
    if isinstance(name, str) and any("\ud800" <= char <= "\udfff" for char in name):
        return "not UTF-8, as every name on the wire is"
    return None


def shown(value: Any) -> str:
    """A value in the form for a problem line: cut, and never a whole structure."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(getattr(value, "value", value))
    return text if len(text) <= 60 else f"{text[:60]}..."


def writable(quotas: QuotaSet) -> list[tuple[AnyEntity, Mapping[AnyKey, float]]]:
    """Entities and values, both in reading order; ValueError for any that no reader would accept."""
    problems: list[str] = []
    found: list[tuple[AnyEntity, Mapping[AnyKey, float]]] = []
    for entity in in_order(quotas):
        for kind, name in parts_of(entity):
            if (wrong := name_problem(name)) is not None:
                problems.append(f"{kind} {shown(name)}: {wrong}")
        keys: list[AnyKey] = [*IpQuotaKey] if isinstance(entity, IpEntity) else [*QuotaKey]
        values = {key: quotas[entity][key] for key in keys if key in quotas[entity]}
        for key in quotas[entity].keys() - values.keys():
            problems.append(f"{entity} {key.value}: expected one of {', '.join(key.value for key in keys)}")
        for key, value in values.items():
            if (expected := expected_value(key.value, value)) is not None:
                problems.append(f"{entity} {key.value} {value}: expected {expected}")
        if values:
            found.append((entity, values))
    refuse(problems)
    return found


def refuse(problems: list[str]) -> None:
    """Raise a ValueError with one line per problem; do nothing if there is none."""
    if problems:
        raise ValueError("\n".join(problem.replace("\n", " ") for problem in problems))


def parts_of(entity: AnyEntity) -> Parts:
    """The parts of an entity."""
    return tuple((kind.value, name) for kind, name in quota_set.parts_of(entity).items())


def default_as_text(entity: AnyEntity, name: str | Default, problems: list[str]) -> str:
    """A name for formats in which `<default>` means the default.

    A client with that literal name cannot be expressed; it is recorded as a problem.
    """
    if isinstance(name, Default):
        return name.value
    if name == DEFAULT.value:
        problems.append(f"{entity}: really called {DEFAULT.value}, which means the default in this format")
    return name


def number_text(value: float) -> str:
    """A number with all digits and no exponent, which every tool reads: `1048576`, `25.5`."""
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
