"""Values from elsewhere: `${NAME}` from the environment, and `${file:/run/secrets/x}` from a file.

So secrets stay out of the settings. A substituted text is not searched for variables again, and no message contains
it. A missing value is an error only for code that reads it: freezing the enforcement needs no login of Kafka.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from kquota_spark.errors import UserError

_VARIABLE = re.compile(r"\$\{(?:file:([^{}]+)|(\w+))\}")
_MOST_BYTES = 65_536


class Missing(str):
    """A problem: the source that `${...}` names is missing or unreadable."""

    __slots__ = ()


class Later:
    """A value that names a variable, resolved when it is first read.

    Args:
        find: returns the value, or appends to the list of problems that it gets.
    """

    def __init__(self, find: Callable[[list[str]], Any]) -> None:
        self._find: Callable[[list[str]], Any] | None = find
        self._value: Any = None
        self.path: Path | None = None
        """The settings file that contains it, for messages."""

    def value(self) -> Any:
        """The value.

        Raises:
            UserError: a line for each missing variable, and for each mistake in the value.
        """
        find = self._find  # another thread may be resolving it at this moment
        if find is not None:
            problems: list[str] = []
            self._value = find(problems)
            if problems:
                raise UserError("\n".join(f"{self.path}: {problem}" for problem in problems))
            self._find = None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark's workers have neither the environment nor the files of the driver.
        try:
            return _same, (self.value(),)
        except UserError as error:
            return _failing, (str(error),)


class Section:
    """A part of the settings: a frozen dataclass in which values may be resolved only when they are read.

    Reading a missing value raises a UserError. `dataclasses.replace` and `==` read all values.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value.value() if isinstance(value, Later) else value

    def changed(self, **changes: Any) -> Self:
        """A copy with other values for some fields; no value is resolved."""
        return type(self)(**{**unread(self), **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), unread(self))


def unread(section: Section) -> dict[str, Any]:
    """The values of a section by field; a `Later` for one that is not resolved."""
    names = [each.name for each in fields(section)]  # type: ignore[arg-type]
    return {name: object.__getattribute__(section, name) for name in names}


def laters(section: Section) -> Iterator[Later]:
    """All values that are resolved when read, also those of nested sections."""
    for field_value in unread(section).values():
        for value in field_value.values() if isinstance(field_value, dict) else (field_value,):
            if isinstance(value, Section):
                yield from laters(value)
            elif isinstance(value, Later):
                yield value


def missing_values(section: Section) -> Iterator[str]:
    """A line with the reason for each value of these settings that cannot be read."""
    for later in laters(section):
        try:
            later.value()
        except UserError as error:
            yield from str(error).splitlines()


def _same(value: Any) -> Any:
    return value


def _failing(message: str) -> Later:
    def fail(_: list[str]) -> None:
        raise UserError(message)

    return Later(fail)


def _made(kind: type[Section], values: dict[str, Any]) -> Section:
    return kind(**values)


def names_variable(value: Any) -> bool:
    """Whether a YAML value contains a variable, at any depth."""
    if isinstance(value, dict | list):
        return any(map(names_variable, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${" in value


def substituted(value: str, where: str, problems: list[str]) -> str:
    """The value with all variables replaced; appends a `Missing`, with its key, for each that cannot be resolved."""

    def replace(match: re.Match[str]) -> str:
        path, name = match.groups()
        try:
            return _of_file(Path(path)) if path else os.environ[name]
        except KeyError:
            problems.append(Missing(f"{where}: environment variable {name} is not set"))
        except OSError as error:
            problems.append(Missing(f"{where}: file {path} cannot be read: {error.strerror}"))
        except ValueError as error:
            problems.append(Missing(f"{where}: file {path}: {error}"))
        return ""

    return _VARIABLE.sub(replace, value)


def _of_file(path: Path) -> str:
    """The text of a file without its line end.

    Raises:
        OSError: it cannot be read.
        ValueError: it cannot hold a secret; the message never shows its content.
    """
    # Non-blocking, because opening a FIFO would wait for a writer.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as opened:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no regular file")
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES} bytes, expected one value")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    if not text:
        raise ValueError("empty")
    if found.st_mode & stat.S_IROTH:
        # Not refused: orchestrators mount secrets with this mode into containers of one user.
        print(f"warning: {path} can be read by every user: chmod o-r", file=sys.stderr)
    return text
