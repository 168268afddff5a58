"""What a file of another tool says, gathered with its problems: a file with any problem is not taken at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kquota_spark.formats.quota_files.quota_values import expected_value, finite_number
from kquota_spark.model.quotas.entities import AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_set import EntityType, QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey, parse_key

MOST_CHARACTERS = 16_000_000
_MOST_PROBLEMS = 50
_TYPES = tuple(kind.value for kind in EntityType)


def checked_text(text: str) -> str:
    """The text of a file, if it can be one of quotas.

    Raises:
        ValueError: it is too long, or binary.
    """
    if len(text) > MOST_CHARACTERS:
        msg = f"longer than {MOST_CHARACTERS:,} characters, expected quotas"
        raise ValueError(msg)
    if "\0" in text:
        msg = f"line {text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL character, expected text"
        raise ValueError(msg)
    return text.removeprefix("\ufeff")


class Reading:
    """The quotas of a file so far, and what is wrong with it; every problem names its place."""

    def __init__(self) -> None:
        self._quotas: dict[AnyEntity, dict[AnyKey, float]] = {}
        self._problems: list[str] = []
        self._count = 0

    def problem(self, where: str, problem: str) -> None:
        """Note a problem; beyond fifty they are only counted."""
        self._count += 1
        if self._count <= _MOST_PROBLEMS:
            self._problems.append(f"{where}: {problem}".replace("\n", " "))

    def entity(self, where: str, parts: Iterable[tuple[str, Name]]) -> AnyEntity | None:
        """The entity of parts as the Admin API names them; None if they are none, which is noted.

        Args:
            where: its place.
            parts: the type, `user`, `client-id` or `ip`, and the raw name or the default.
        """
        try:
            return _entity(parts)
        except ValueError as error:
            self.problem(where, str(error))
            return None

    def add(self, where: str, entity: AnyEntity, key: str, value: Any) -> None:
        """Take one value, in Kafka's unit: a number, or a text of one."""
        try:
            number = _number(entity, key, value)
        except ValueError as error:
            self.problem(where, str(error))
            return
        values = self._quotas.setdefault(entity, {})
        if parse_key(key) in values:
            self.problem(where, f"{entity} {key} stands here twice, expected once")
        values[parse_key(key)] = number

    def quotas(self) -> QuotaSet:
        """All that was read.

        Raises:
            ValueError: there were problems, one a line.
        """
        if self._count > _MOST_PROBLEMS:
            self._problems[_MOST_PROBLEMS:] = [f"... and {self._count - _MOST_PROBLEMS:,} more problems"]
        if self._problems:
            raise ValueError("\n".join(self._problems))
        return self._quotas


def _entity(parts: Iterable[tuple[str, Name]]) -> AnyEntity:
    given: dict[str, str | Default] = {}
    for kind, name in parts:
        if kind not in _TYPES:
            msg = f"{shown(kind)}, expected one of {', '.join(_TYPES)}"
            raise ValueError(msg)
        if kind in given:
            msg = f"{kind} stands here twice, expected once"
            raise ValueError(msg)
        if name is None or (wrong := name_problem(name)) is not None:
            msg = f"{kind} {shown(name)}: {'expected a name' if name is None else wrong}"
            raise ValueError(msg)
        given[kind] = name
    if "ip" not in given:
        return Entity(given.get("user"), given.get("client-id"))
    if len(given) > 1:
        msg = "an ip beside a user or client-id, expected it alone"
        raise ValueError(msg)
    return IpEntity(given["ip"])


def _number(entity: AnyEntity, key: str, value: Any) -> float:
    keys = [key.value for key in (IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey)]
    if key not in keys:
        msg = f"{shown(key)}, expected {'one of ' if len(keys) > 1 else ''}{', '.join(keys)}"
        raise ValueError(msg)
    number = finite_number(value)
    expected = expected_value(key, number)
    if number is None or expected is not None:
        msg = f"{key} {shown(value)}, expected {expected}"
        raise ValueError(msg)
    return number


def name_problem(name: Name) -> str | None:
    """Why nobody can be called that; None if somebody can."""
    if name == "":
        return "expected a name"
    if isinstance(name, str) and any("\ud800" <= char <= "\udfff" for char in name):
        return "not UTF-8, as every name on the wire is"
    return None


def shown(value: Any) -> str:
    """A value inside a problem line, cut; never a whole structure."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(getattr(value, "value", value))
    return text if len(text) <= 60 else f"{text[:60]}..."
