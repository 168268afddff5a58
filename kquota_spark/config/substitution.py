"""Values from elsewhere: `${NAME}` of the environment, and `${file:/run/secrets/x}` of a file.

So secrets stay out of the settings. What was put in is never read again, and stands in no message. A value that is
missing is an error for who reads it, and for nobody else: who freezes enforcement needs no login of Kafka.
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
    """A problem: what `${...}` names is not there."""

    __slots__ = ()


class Later:
    """A value that names a variable, found when it is first read.

    Args:
        find: gives the value, or appends to the problems that it is given.
    """

    def __init__(self, find: Callable[[list[str]], Any]) -> None:
        self._find: Callable[[list[str]], Any] | None = find
        self._value: Any = None
        self.path: Path | None = None
        """The file that it stands in, for messages."""

    def value(self) -> Any:
        """The value.

        Raises:
            UserError: a line for each variable that is missing, and for what is wrong with the value.
        """
        find = self._find  # another thread may be finding it at this moment
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
    """A part of the settings: a frozen dataclass whose values may be found only when they are read.

    Who reads a value that is missing gets a UserError. `dataclasses.replace` and `==` read all of them.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value.value() if isinstance(value, Later) else value

    def changed(self, **changes: Any) -> Self:
        """The same with other values for some fields; none is read."""
        return type(self)(**{**unread(self), **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), unread(self))


def unread(section: Section) -> dict[str, Any]:
    """The values of a section by field, a `Later` where one is to be found."""
    names = [each.name for each in fields(section)]  # type: ignore[arg-type]
    return {name: object.__getattribute__(section, name) for name in names}


def laters(section: Section) -> Iterator[Later]:
    """All values that are to be found, of the sections inside too."""
    for field_value in unread(section).values():
        for value in field_value.values() if isinstance(field_value, dict) else (field_value,):
            if isinstance(value, Section):
                yield from laters(value)
            elif isinstance(value, Later):
                yield value


def missing_values(section: Section) -> Iterator[str]:
    """A line for each value of these settings that cannot be read, and why."""
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
    """Whether a value of YAML has a variable anywhere in it."""
    if isinstance(value, dict | list):
        return any(map(names_variable, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${" in value


def substituted(value: str, where: str, problems: list[str]) -> str:
    """The value with all variables replaced; a `Missing` is appended for each that is not there, with its key."""

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
        ValueError: it is none that holds a secret; says what it is, never what is in it.
    """
    # Without waiting, for a FIFO would be waited for.
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
        # Not refused: orchestrators mount secrets like this into a container of one user.
        print(f"warning: {path} can be read by every user: chmod o-r", file=sys.stderr)
    return text
