"""Reads `owners.yaml`: who owns which clients. All problems of the file are reported at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

from kquota_spark.config.loader import read_as
from kquota_spark.config.rules import Within
from kquota_spark.config.settings import Settings
from kquota_spark.config.settings_yaml import yaml_of
from kquota_spark.errors import UserError
from kquota_spark.model.budgets.objectives import (
    LEAST_DAYS,
    LEAST_PERCENT,
    MOST_DAYS,
    MOST_PERCENT,
    Objective,
)
from kquota_spark.model.owners import UNOWNED_NAME, Owner, Owners
from kquota_spark.name_patterns import is_match, pattern_problem

_MOST_NAME = 100
"""Maximum length of the name of an owner, characters."""
_TIMES = ("valid_from", "valid_to")
_PATTERNS = ("users", "client_ids")
_DEFAULT = Objective()
_Percent = Annotated[float, Within(LEAST_PERCENT, MOST_PERCENT)]
_Days = Annotated[int, Within(LEAST_DAYS, MOST_DAYS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerEntry:
    """An entry of the file; times are ISO texts."""

    name: str
    cost_centre: str = ""
    contact: str = ""
    users: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()
    valid_from: str = ""
    valid_to: str = ""
    objective_percent: _Percent = 0.0
    """The objective of its error budget; 0 for that of the file."""
    objective_days: _Days = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersFile:
    """The whole file."""

    owners: tuple[OwnerEntry, ...]
    objective_percent: _Percent = _DEFAULT.percent
    """Least share of active seconds without a throttle, for owners without an objective of their own."""
    objective_days: _Days = _DEFAULT.days
    """Period of the objective, days."""


def owners_of(settings: Settings) -> Owners | None:
    """The owners of the settings; None if `owners` names no file.

    Raises:
        UserError: the file cannot be read, or has problems; one line per problem.
    """
    return load_owners(Path(settings.owners)) if settings.owners else None


def load_owners(path: Path) -> Owners:
    """Read and check a file of owners.

    Raises:
        UserError: the file cannot be read, or has problems; one line per problem.
    """
    file = read_as(OwnersFile, _with_iso_times(yaml_of(path)), path)
    problems = [
        f"{path}: owners[{number}].{problem}"
        for number, entry in enumerate(file.owners)
        for problem in (*_problems(entry), *_other_objective(file, number))
    ]
    if problems:
        raise UserError("\n".join(problems))
    default = Objective(file.objective_percent, file.objective_days)
    return Owners((_owner(entry, file) for entry in file.owners), is_match, default)


def _with_iso_times(data: Any) -> Any:
    """The parsed YAML, in which YAML's own dates and times are ISO texts again."""
    if not isinstance(data, dict):
        return {} if data is None else data
    entries = data.get("owners")
    if not isinstance(entries, list):
        return data
    return {**data, "owners": [_entry_with_iso_times(entry) for entry in entries]}


def _entry_with_iso_times(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    times = {name: entry[name].isoformat() for name in _TIMES if isinstance(entry.get(name), date)}
    return {**entry, **times}


def _problems(entry: OwnerEntry) -> Iterator[str]:
    if not entry.name or len(entry.name) > _MOST_NAME or "," in entry.name or not entry.name.isprintable():
        yield f"name: {entry.name[:60]!r}, expected 1 to {_MOST_NAME} characters without a comma"
    elif entry.name == UNOWNED_NAME:
        yield f"name: {UNOWNED_NAME} is the name for clients without an owner, expected another name"
    if not (entry.users or entry.client_ids):
        yield "users: neither users nor client_ids, expected patterns of the clients that it owns"
    for key in _PATTERNS:
        for number, pattern in enumerate(getattr(entry, key)):
            if problem := pattern_problem(pattern):
                yield f"{key}[{number}]: {pattern[:60]!r} {problem}"
    wrong = False
    for key in _TIMES:
        try:
            _time_ms(getattr(entry, key))
        except (ValueError, OverflowError):
            wrong = True
            yield (
                f"{key}: {getattr(entry, key)[:60]!r}, expected a time in UTC in whole seconds, such as 2026-01-31 or "
                "2026-01-31T12:00:00Z"
            )
    from_ms, to_ms = (None, None) if wrong else (_time_ms(entry.valid_from), _time_ms(entry.valid_to))
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        yield f"valid_to: {entry.valid_to}, expected a time after valid_from"


def _other_objective(file: OwnersFile, number: int) -> Iterator[str]:
    """The problem of an entry with another objective than a former entry of the same name."""
    entry = file.owners[number]
    for key in ("objective_percent", "objective_days"):
        own = getattr(entry, key)
        former = [getattr(one, key) for one in file.owners[:number] if one.name == entry.name]
        if former and own != former[0]:
            yield f"{key}: another one than in the first entry of {entry.name}, expected the same in all its entries"


def _time_ms(text: str) -> int | None:
    """Epoch ms of an ISO time, in UTC unless it has a zone; None for an empty text.

    Raises:
        ValueError: the text is no time of whole seconds.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.microsecond:
        raise ValueError(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1_000


def _owner(entry: OwnerEntry, file: OwnersFile) -> Owner:
    percent = entry.objective_percent or file.objective_percent
    return Owner(
        name=entry.name,
        cost_centre=entry.cost_centre,
        contact=entry.contact,
        users=entry.users,
        client_ids=entry.client_ids,
        from_ms=_time_ms(entry.valid_from),
        to_ms=_time_ms(entry.valid_to),
        objective=Objective(percent, entry.objective_days or file.objective_days),
    )
