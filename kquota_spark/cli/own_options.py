"""Options that only one command has. Each is declared once: a field of a dataclass is the option and its value.

@dataclass(frozen=True, slots=True)
class _Own:
    owner: str | None = option("--owner", "only this owner of the file `owners`", metavar="NAME")
    is_whole: bool = switch("--whole", "all violations of a bucket as one period")
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, TypeVar

_Own = TypeVar("_Own")


def option(name: str, about: str, *, default: Any = None, **words: Any) -> Any:
    """A field that is an option.

    Args:
        name: as people write it: `--owner`, or the name of the field for an argument without a name.
        about: its help.
        default: its value if it is not given.
        words: other arguments of `add_argument`, e.g. `metavar`, `type` and `choices`.
    """
    return field(default=default, metadata={"name": name, "words": {"help": about, **words}})


def switch(name: str, about: str) -> Any:
    """A field that is an option without a value: whether it is given."""
    return option(name, about, default=False, action="store_true")


def add_own(parser: argparse.ArgumentParser, own: type[Any]) -> None:
    """Add the options that a dataclass declares."""
    for each in fields(own):
        name, words = each.metadata["name"], dict(each.metadata["words"])
        if name.startswith("-"):
            words["dest"] = each.name
        parser.add_argument(name, default=each.default, **words)


def reader_of(own: type[_Own]) -> Callable[[argparse.Namespace], _Own]:
    """A function that makes the values of a dataclass from parsed options."""

    def read(options: argparse.Namespace) -> _Own:
        return own(**{each.name: getattr(options, each.name) for each in fields(own)})  # type: ignore[arg-type]

    return read
