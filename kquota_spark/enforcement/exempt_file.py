"""The file of exempt names, `exempt.file` of the policies: one per line. `kquota exempt` adds and removes lines.

    # comments and empty lines stay
    users/admin
    clients/mirror%20maker
    pattern connect-.*

Users and client ids are encoded as in Kafka's nodes, so a name with any characters takes one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kquota_spark.enforce.guard_settings import Exempt
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.name_patterns import pattern_problem
from kquota_spark.process.replaced_file import replace_file

_PATTERN = "pattern "
_EXPECTED = "expected users/NAME, clients/ID or pattern REGEX"
_MOST_BYTES = 1_000_000
_ADVICE = "edit it where it comes from"
"""Advice for a file that cannot be written: mostly it is a ConfigMap."""


class ExemptName(NamedTuple):
    """One line of the file."""

    kind: str
    """`user`, `client` or `pattern`."""
    name: str
    """The name itself, or an RE2 regular expression that matches whole names."""

    @property
    def line(self) -> str:
        """The text of the line in the file."""
        if self.kind == "pattern":
            return f"{_PATTERN}{self.name}"
        return str(Entity(self.name) if self.kind == "user" else Entity(client_id=self.name))

    @property
    def problem(self) -> str | None:
        """Why this is not a valid line of the file; None if it is valid."""
        if self.name == "":
            return "an empty name, expected a name"
        if self.kind != "pattern":
            return None
        if self.name != self.name.strip() or "\n" in self.name or "\r" in self.name:
            return "begins or ends with a blank, or has a line feed: spell it as \\x20 or \\n"
        return pattern_problem(self.name)


def read_exempt(path: Path) -> Exempt:
    """The exempt names and patterns of a file.

    Raises:
        UserError: it cannot be read, or has problems; one line per problem, with its line number.
    """
    names: dict[str, list[str]] = {"user": [], "client": [], "pattern": []}
    for _, found in _lines(path):
        if found is not None:
            names[found.kind].append(found.name)
    return Exempt(
        users=tuple(names["user"]), client_ids=tuple(names["client"]), patterns=tuple(names["pattern"])
    )


def add_exempt(path: Path, name: ExemptName) -> bool:
    """Append a line; a running enforcer reads either the old or the new file.

    Returns:
        Whether the file changed: False if it already had the line.

    Raises:
        UserError: the file is not valid, or cannot be read or written.
    """
    lines = _lines(path)
    if any(found == name for _, found in lines):
        return False
    text = "\n".join(line for line, _ in lines)
    end = "" if text.endswith("\n") or not text else "\n"
    replace_file(path, f"{text}{end}{name.line}\n".encode(), advice=_ADVICE)
    return True


def remove_exempt(path: Path, name: ExemptName) -> bool:
    """Remove every line with a name; a running enforcer reads either the old or the new file.

    Returns:
        Whether the file changed: False if it had no such line.

    Raises:
        UserError: the file is not valid, or cannot be read or written.
    """
    lines = _lines(path)
    kept = [line for line, found in lines if found != name]
    if len(kept) == len(lines):
        return False
    replace_file(path, "\n".join(kept).encode(), advice=_ADVICE)
    return True


def _lines(path: Path) -> list[tuple[str, ExemptName | None]]:
    """Each line with its parsed name; UserError with every invalid line."""
    lines, problems = list[tuple[str, ExemptName | None]](), list[str]()
    for number, line in enumerate(_text(path).split("\n"), start=1):
        try:
            lines.append((line, _parsed(line)))
        except ValueError as error:
            problems.append(f"{path}: line {number}: {error}")
    if problems:
        raise UserError("\n".join(problems))
    return lines


def _parsed(line: str) -> ExemptName | None:
    """The name or pattern of a line; None for a comment or an empty line; ValueError for an invalid line."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    is_pattern = line.startswith(_PATTERN)
    found = ExemptName("pattern", line.removeprefix(_PATTERN).strip()) if is_pattern else _entity(line)
    if problem := found.problem:
        raise ValueError(f"{line[:60]!r}: {problem}")
    return found


def _entity(line: str) -> ExemptName:
    try:
        entity = Entity.parse(line)
    except ValueError:
        raise ValueError(f"{line[:60]!r}, {_EXPECTED}") from None
    if isinstance(entity.user, str) and entity.client_id is None:
        return ExemptName("user", entity.user)
    if isinstance(entity.client_id, str) and entity.user is None:
        return ExemptName("client", entity.client_id)
    raise ValueError(f"{line[:60]!r}, {_EXPECTED}")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file of exempt names: make it, it may be empty") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path}: {len(data):,} bytes, expected exempt names in {_MOST_BYTES:,} at most")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8, expected exempt names") from None
