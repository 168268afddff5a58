"""Quotas that an option adds to those in force: `user=bob,producer_byte_rate=250000`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import expected_value, finite_number
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey

_PARTS = ("user", "client-id")
_KEYS = {key.value: key for key in QuotaKey}
_EXAMPLE = "user=bob,producer_byte_rate=250000"


def added_quotas(texts: Iterable[str]) -> dict[Entity, dict[AnyKey, float]]:
    """The values by entity; of two values for the same key the last one counts.

    Args:
        texts: each with a user, a client id or both (a name or `<default>`), and one value or more.

    Raises:
        UserError: a text is not in that form.
    """
    found: dict[Entity, dict[AnyKey, float]] = {}
    for text in texts:
        parts, values = _read(text)
        if not parts or not values:
            missing = "user or client-id" if not parts else f"quota, one of {', '.join(_KEYS)}"
            raise UserError(f"--add {text}: names no {missing}, expected e.g. {_EXAMPLE}")
        entity = Entity(parts.get("user"), parts.get("client-id"))
        found.setdefault(entity, {}).update(values)
    return found


def _read(text: str) -> tuple[dict[str, str | Default], dict[AnyKey, float]]:
    parts: dict[str, str | Default] = {}
    values: dict[AnyKey, float] = {}
    for piece in text.split(","):
        name, equals, given = piece.partition("=")
        if not equals or not given:
            raise UserError(f"--add {text}: {piece!r} is no name=value, expected e.g. {_EXAMPLE}")
        if name in _PARTS:
            parts[name] = DEFAULT if given == DEFAULT.value else given
        elif name in _KEYS:
            values[_KEYS[name]] = _value(text, name, given)
        else:
            near = get_close_matches(name, [*_PARTS, *_KEYS], n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join((*_PARTS, *_KEYS))}"
            raise UserError(f"--add {text}: unknown name {name!r}, {hint}")
    return parts, values


def _value(text: str, name: str, given: str) -> float:
    value = finite_number(given)
    expected = expected_value(name, value)
    if value is None or expected is not None:
        raise UserError(f"--add {text}: {name} is {given!r}, expected {expected}")
    return value
