"""Columns of a table for people.

The schema gives each name a heading and a unit, and the unit decides how a value is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kquota_spark.cli.text.render import SMALLEST_TEXT, Row, Shown
from kquota_spark.formats.text.person_units import (
    amount_text,
    broker_text,
    or_dash,
    person_bytes,
    person_count,
    person_ms,
    person_name,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.schema.units import HEADINGS, Unit, unit_of

_TEXTS: Mapping[Unit, Callable[[str, Any], str]] = MappingProxyType({
    Unit.RATE: rate_text,
    Unit.AMOUNT: lambda quota_type, value: or_dash(value, lambda amount: amount_text(quota_type, amount)),
    Unit.PERCENT: lambda _, value: person_percent(value),
    Unit.MS: lambda _, value: or_dash(value, person_ms),
    Unit.BYTES: lambda _, value: or_dash(value, person_bytes),
    Unit.REQUESTS: lambda _, value: or_dash(value, person_count),
    Unit.BROKER: lambda _, value: broker_text(value),
    Unit.QUOTA_TYPE: lambda _, value: type_text(value),
    Unit.NAME: lambda _, value: person_name(value),
})  # fmt: skip
"""How to print a value, from the quota type of its row and the value."""
_OF_TEXT = (Unit.QUOTA_TYPE, Unit.NAME)
_TEXT_COLUMNS = 8
"""What a text keeps."""


def column(
    name: str,
    title: str = "",
    *,
    rank: int = 0,
    about: str = "",
    keep: int | None = None,
    quota_type: str = "",
    hides_zero: bool = False,
) -> Shown:
    """A column with the heading and in the unit of its name.

    Args:
        name: of the column, e.g. `limit_per_s`.
        title: its heading, if it is not the usual one.
        rank: see `Shown`.
        about: what a note below the table explains about the column, e.g. `by brokers`.
        keep: see `Shown`; None for the usual width.
        quota_type: of all rows, if they have no column `quota_type`.
        hides_zero: whether 0 is printed as `-`, as null is.

    Raises:
        KeyError: the name has no unit, or is that of a time, which needs the day of the other rows.
    """
    unit = unit_of(name)
    if unit is None or unit not in _TEXTS:
        raise KeyError(f"{name}: no unit")
    text, is_text = _TEXTS[unit], unit in _OF_TEXT
    if keep is None:
        keep = _TEXT_COLUMNS if is_text else SMALLEST_TEXT
    title = title or HEADINGS[name]
    return Shown(
        title,
        lambda row: text(
            quota_type or row.get("quota_type", ""), (row[name] or None) if hides_zero else row[name]
        ),
        is_text=is_text,
        keep=keep,
        rank=rank,
        note=f"{title}: {about}" if about else "",
    )


def own_column(title: str, text: Callable[[Row], str], *, rank: int = 0, about: str = "") -> Shown:
    """A column with numbers that a command prints in its own way.

    Args:
        title: its heading.
        text: prints the value of a row.
        rank: see `Shown`.
        about: see `column`.
    """
    return Shown(title, text, rank=rank, note=f"{title}: {about}" if about else "")
