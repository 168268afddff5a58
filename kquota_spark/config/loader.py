"""Reads a YAML file into `Settings`, checking every key; all problems are reported at once.

Each problem is one line, `file: path.to.key: problem, expected ...`. Values may name a variable of the environment as
`${NAME}` and a file as `${file:PATH}`, so that secrets stay out of the settings. Duplicate keys are refused because
they hide a mistake, aliases because they can expand a small file to gigabytes.

A value with a missing variable is refused only when it is read. Secrets are resolved only then: see `substitution`.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date
from difflib import get_close_matches
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar

from kquota_spark.config.client_properties import unknown_properties
from kquota_spark.config.roots import unreached_options
from kquota_spark.config.routes import IF_MISSING
from kquota_spark.config.rules import Duration, Refused, topic_problems
from kquota_spark.config.settings import ASKED, NO_KEY, Kafka, Settings, Tables
from kquota_spark.config.settings_yaml import yaml_of
from kquota_spark.config.substitution import (
    Later,
    Missing,
    Section,
    laters,
    names_variable,
    substituted,
    unread,
)
from kquota_spark.errors import UserError

_T = TypeVar("_T")
_UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]+)")
_MOST_UNKNOWN = 20
"""Maximum number of unknown keys that are named: searching a suggestion for each takes time."""
_PLURALS: dict[Any, str] = {str: "texts", int: "whole numbers", float: "numbers", Duration: "lengths of time"}
_KINDS = {str: "a text", int: "a number", float: "a number", bool: "true or false", date: "a date"}


_OF_TABLES = {"location": "tables", "requests": "kept_requests"}
"""Fields of the settings by key of the section `tables`."""
_SELDOM = {"storage_options"}
"""Keys that an unknown key is hardly meant for; `kquota freeze` needs them, and reports tables out of reach."""


def load_settings(path: Path) -> Settings:
    """Read and check a settings file.

    Raises:
        UserError: the file cannot be read, or one line per problem found in it.
    """
    settings, mistakes = settings_and_mistakes(path)
    if mistakes:
        raise UserError("\n".join(mistakes))
    return settings


def settings_and_mistakes(path: Path) -> tuple[Settings, list[str]]:
    """Read the valid parts of a settings file; return them with a line for each mistake.

    A part with a mistake raises a UserError with all mistakes when it is read. So mistakes in parts that a command does
    not use do not stop it. A missing part may be a misspelled unknown key, so reading it raises too.

    Raises:
        UserError: the file cannot be read, or is not a mapping.
    """
    data, problems = yaml_of(path), list[str]()
    data = {} if data is None else data
    if not isinstance(data, dict):
        _read_dataclass(Settings, data, "", problems)
        raise UserError("\n".join(f"{path}: {problem}" for problem in problems))
    wrong, found = Later(lambda own: own.extend(problems)), dict[str, Any]()
    if isinstance(data.get("tables"), dict):
        section = _read_apart(Tables, data["tables"], "tables", wrong, problems)
        found = {_OF_TABLES[name]: value for name, value in section.items()}
        found.setdefault("tables", Tables().location)
        data = {key: value for key, value in data.items() if key != "tables"}
    found = {**_read_apart(Settings, data, "", wrong, problems), **found}
    if unreached := _unreached(Settings(**found), data.get("storage_options")):
        problems.extend(unreached)
        found["storage_options"] = wrong
    settings = Settings(**found)
    for later in laters(settings):
        later.path = path
    return settings.changed(file=str(path)), [f"{path}: {problem}" for problem in problems]


def _unreached(settings: Settings, options: Any) -> list[str]:
    """Problems of storage options that do not reach all libraries; only roots that are known already are checked."""
    given = unread(settings)
    roots = [root for root in (given["tables"], given["checkpoints"]) if isinstance(root, str)]
    # The names are known, even if a value is resolved only when it is read.
    return [*unreached_options(roots, [*map(str, options)])] if isinstance(options, dict) else []


def _read_apart(
    of: type[Any], value: dict[Any, Any], where: str, wrong: Later, problems: list[str]
) -> dict[str, Any]:
    """The fields of a dataclass, each read separately.

    Args:
        of: the dataclass.
        value: the mapping of the file.
        where: path of the mapping in the file; empty for the whole file.
        wrong: the value for a field with a mistake, and for a missing one that may be misspelled.
        problems: gets a line for each mistake.
    """
    hints, prefix = _keys_of(of), f"{where}." if where else ""
    unknown = [f"{prefix}{problem}" for problem in _unknown_keys(value, hints)]
    problems.extend(unknown)
    found = {name: wrong for name in hints if unknown and name not in value and name not in _SELDOM}
    for field in fields(of):
        if field.name in value and field.name in hints:
            own: list[str] = []
            read = _read_field(of, field, hints[field.name], value[field.name], prefix, own)
            found[field.name] = wrong if own else read
            problems.extend(own)
    return found


def read_yaml_as(target: type[_T], path: Path, relations: Callable[[_T], Iterable[str]] | None = None) -> _T:
    """Read a YAML file into the dataclass `target`; see `load_settings` for the errors.

    Args:
        target: the dataclass.
        path: the file.
        relations: finds problems between several values, each with its key first; None for none.
    """
    return read_as(target, yaml_of(path), path, relations)


def read_as(
    target: type[_T], data: Any, path: Path, relations: Callable[[_T], Iterable[str]] | None = None
) -> _T:
    """Read parsed YAML into the dataclass `target`. See `load_settings` for the errors.

    Args:
        target: the dataclass.
        data: the parsed YAML; None for an empty file.
        path: the file, for messages.
        relations: see `read_yaml_as`.
    """
    problems = list[str]()
    value = _read(target, {} if data is None else data, "", problems)
    if value is not None and relations is not None:
        problems.extend(relations(value))
    if problems:
        raise UserError("\n".join(f"{path}: {problem}" for problem in problems))
    if isinstance(value, Section):
        for later in laters(value):
            later.path = path
    return typing.cast("_T", value)


def _read(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    """Convert `value` to the type `wanted`; on a problem, append it and return None."""
    if is_dataclass(wanted):
        return _read_dataclass(wanted, value, where, problems)
    if isinstance(wanted, UnionType):
        return _read_one_of(typing.get_args(wanted), value, where, problems)
    if isinstance(value, str) and "${" in value:
        own: list[str] = []
        found = substituted(value, where, own)
        if own:
            problems.extend(own)
            return None
        read = _read_plain(wanted, found, where, own)
        # A substituted value may be a secret in the wrong place: a message shows its variable instead.
        problems.extend(
            problem.replace(repr(found), repr(value)).replace(repr(found)[:60], repr(value))
            for problem in own
        )
        return read
    return _read_plain(wanted, value, where, problems)


def _read_plain(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    if typing.get_origin(wanted) is Annotated:
        return _read_by_rules(wanted, value, where, problems)
    if wanted is Duration:
        return _read_duration(value, where, problems)
    if typing.get_origin(wanted) is not None:
        return _read_generic(wanted, value, where, problems)
    if issubclass(wanted, Enum):
        return _read_enum(wanted, value, where, problems)
    if wanted is float:
        return _read_float(value, where, problems)
    return _read_scalar(wanted, value, where, problems)


def _read_by_rules(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    """Read a value of the type below the rules, and apply these in order."""
    own: list[str] = []
    read = _read_plain(wanted.__origin__, value, where, own)
    shown = f"{read:g}" if isinstance(read, float) else _shown(value, where)
    try:
        for rule in () if own else wanted.__metadata__:
            read = rule(read, shown)
    except ValueError as error:
        own.append(Refused(f"{where}: {error}"))
    problems.extend(own)
    return read


def _read_one_of(kinds: tuple[Any, ...], value: Any, where: str, problems: list[str]) -> Any:
    """Read a mapping into one of several dataclasses: its key `kind` chooses."""
    by_kind = {typing.get_args(typing.get_type_hints(each)["kind"])[0]: each for each in kinds}
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in by_kind:
        return _read_dataclass(by_kind[kind], value, where, problems)
    given = _shown(kind, where) if isinstance(value, dict) else _shown(value, where)
    problems.append(f"{where}.kind: {given}, expected one of {', '.join(by_kind)}")
    return None


def _read_enum(wanted: type[Enum], value: Any, where: str, problems: list[str]) -> Any:
    """A member by its value if that is a text, else by its name."""
    members = {one.value if isinstance(one.value, str) else one.name.lower(): one for one in wanted}
    if value is False:  # YAML 1.1 reads an unquoted `off` as this
        value = "off"
    if not isinstance(value, str) or value not in members:
        problems.append(f"{where}: {_shown(value, where)}, expected one of {', '.join(members)}")
        return None
    return members[value]


def _read_float(value: Any, where: str, problems: list[str]) -> float | None:
    try:
        is_finite = not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):  # not a number, or a whole number larger than any double
        is_finite = False
    if not is_finite:
        problems.append(f"{where}: {_shown(value, where)}, expected a number, e.g. 5000000")
        return None
    return float(value)


def _read_generic(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    """Read a choice, a list, or a mapping by names."""
    origin = typing.get_origin(wanted)
    if origin is Literal:
        choices = typing.get_args(wanted)
        if value not in choices:
            problems.append(f"{where}: {value!r}, expected one of {', '.join(choices)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            problems.append(f"{where}: {_shown(value, where)}, expected a list")
            return ()
        inner = typing.get_args(wanted)[0]
        return tuple(_read(inner, item, f"{where}[{i}]", problems) for i, item in enumerate(value))
    key, inner = typing.get_args(wanted)
    plain = getattr(inner, "__origin__", inner)
    if not isinstance(value, dict):
        problems.append(
            f"{where}: {_shown(value, where)}, expected a mapping of names to {_PLURALS.get(plain, 'mappings')}"
        )
        return {}
    for name in () if key is str else map(str, value):
        _read(key, name, f"{where}.{name}", problems)
    if where.rpartition(".")[2] == "options":
        problems.extend(f"{where}.{problem}" for problem in unknown_properties(map(str, value)))
    if plain is not str:
        return {str(k): _read(inner, v, f"{where}.{k}", problems) for k, v in value.items()}
    return {str(k): str(_read(inner, _scalar(v), f"{where}.{k}", problems)) for k, v in value.items()}


def _scalar(value: Any) -> Any:
    """A value as text, because Kafka properties are texts; numbers and booleans in Kafka's spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _read_scalar(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    right = isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))
    if not right:
        expected = {int: "a whole number", str: "a text", bool: "true or false"}[wanted]
        problems.append(f"{where}: {_shown(value, where)}, expected {expected}")
        return None
    return value


def _read_duration(value: Any, where: str, problems: list[str]) -> int | None:
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match.group(2) not in _UNITS_MS:
        expected = f"a number with a unit ({', '.join(_UNITS_MS)}), e.g. 10 s"
        problems.append(f"{where}: {_shown(value, where)}, expected {expected}")
        return None
    return round(float(match.group(1)) * _UNITS_MS[match.group(2)])


def _read_dataclass(wanted: Any, value: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        # A file that is a single text has another format, such as client properties: it may begin with a password.
        found = "a text" if not where and isinstance(value, str) else _shown(value, where)
        problems.append(f"{where or 'file'}: {found}, expected a mapping of keys")
        return None
    hints, keeps_given = _keys_of(wanted), any(field.name == "given" for field in fields(wanted))
    asked = {field.name for field in fields(wanted) if field.metadata == ASKED}
    value = {key: each for key, each in value.items() if each is not None or key not in asked}
    prefix = f"{where}." if where else ""
    problems.extend(f"{prefix}{problem}" for problem in _unknown_keys(value, hints))
    known = {
        field.name: _read_field(wanted, field, hints[field.name], value[field.name], prefix, problems)
        for field in fields(wanted)
        if field.name in value and field.name in hints
    }
    if wanted is Kafka:
        there = {name: each for name, each in known.items() if not isinstance(each, Later)}
        problems.extend(f"{where}.{problem}" for problem in topic_problems(there))
    if keeps_given:
        known["given"] = frozenset(known)
    for field in fields(wanted):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in known:
            advice = field.metadata.get(IF_MISSING)
            problems.append(f"{prefix}{field.name}: missing{f', {advice}' if advice else ''}")
    # A value that only a rule refuses can still be compared with others, so all problems come at once.
    return wanted(**known) if all(isinstance(problem, Refused) for problem in problems) else None


def _keys_of(wanted: type[Any]) -> dict[str, Any]:
    """The keys of a dataclass in the file, with their types."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    hints.pop("given", None)
    return {
        name: kind for name, kind in hints.items() if wanted.__dataclass_fields__[name].metadata != NO_KEY
    }


def _read_field(
    of: type[Any], field: Field[Any], wanted: Any, value: Any, prefix: str, problems: list[str]
) -> Any:
    """Read a field of a dataclass; return a `Later` for a secret of a section, and for a missing variable."""
    where = prefix + field.name
    is_section = issubclass(of, Section) and not is_dataclass(wanted)
    if not (is_section and names_variable(value)):
        return _read(wanted, value, where, problems)
    later, own = Later(partial(_read, wanted, value, where)), list[str]()
    # A value that is not a secret is read at once, so that its mistakes are found at once.
    found = _read(wanted, value, where, own) if field.repr else later
    if any(isinstance(problem, Missing) for problem in own):
        return later
    problems.extend(own)
    return found


def _unknown_keys(given: Iterable[Any], known: Collection[str]) -> Iterator[str]:
    unknown = [key for key in given if key not in known]
    for key in unknown[:_MOST_UNKNOWN]:
        near = get_close_matches(str(key), known, n=1)
        hint = f", did you mean {near[0]}?" if near else f", expected one of {', '.join(known)}"
        yield f"{key}: unknown key{hint}"
    if len(unknown) > _MOST_UNKNOWN:
        yield f"{len(unknown) - _MOST_UNKNOWN} more unknown keys"


def _shown(value: Any, where: str) -> str:
    """A value for a message: short, never a nested structure, and never a secret."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is not None and not _secret_keys().isdisjoint(where.split(".")):
        return _KINDS.get(type(value), "another value")
    return "nothing" if value is None else repr(value)[:60]


@cache
def _secret_keys() -> frozenset[str]:
    """Keys with values that no message shows, nor values below them: the fields of all sections without `repr`."""
    return frozenset(each.name for kind in _sections(Section) for each in fields(kind) if not each.repr)


def _sections(kind: type[Section]) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _sections(each)
