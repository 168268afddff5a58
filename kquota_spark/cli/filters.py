"""The values of the options that filter rows, and the conditions of queries that they make."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.reports.agreement.span import Span

if TYPE_CHECKING:
    from kquota_spark.cli.options import Since

_NO_NAME = "''"


@dataclass(frozen=True, slots=True)
class Filter:
    """The values of the options of `add_filter_options`; None filters nothing."""

    user: str | None = None
    client: str | None = None
    broker: int | None = None
    type: str | None = None
    since: Since | None = None
    until: Since | None = None
    """Exclusive."""
    is_throttled: bool = False
    """Only rows with throttled requests."""
    is_open: bool = False
    """Only episodes that have not ended."""

    @property
    def newer_than_ms(self) -> int | None:
        """The --since as epoch ms, for `open_tables`, which leaves older files out."""
        return None if self.since is None else self.since.time_ms

    @property
    def span(self) -> Span:
        """The time from --since until --until."""
        return Span(self.newer_than_ms, None if self.until is None else self.until.time_ms)

    @property
    def is_of_all(self) -> bool:
        """Whether the filter takes rows of every bucket; the time is ignored."""
        named = (self.user, self.client, self.broker, self.type)
        return all(value is None for value in named) and not (self.is_throttled or self.is_open)

    @property
    def text(self) -> str:
        """The filters as they were given, for a message; empty without filters."""
        given = {"user": self.user, "client": self.client, "broker": self.broker, "type": self.type}
        parts = [
            f"--{name} {_NO_NAME if value == '' else value}"
            for name, value in given.items()
            if value is not None
        ]
        parts += [] if self.since is None else [f"--since {self.since.text}"]
        parts += [] if self.until is None else [f"--until {self.until.text}"]
        parts += ["--throttled"] if self.is_throttled else []
        return " ".join(parts + (["--open"] if self.is_open else []))


def filter_of(options: argparse.Namespace) -> Filter:
    """The filter of the given options; options that the command does not have filter nothing."""
    names = {name: name for name in ("user", "broker", "type", "since", "until")} | {"client": "client_id"}
    given = {name: getattr(options, option, None) for name, option in names.items()}
    return Filter(
        **given, is_throttled=getattr(options, "throttled", False), is_open=getattr(options, "open", False)
    )


class Conditions:
    """Conditions of a query and the values for their `?`; texts of users are only passed as values."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.values: list[object] = []

    def add(self, part: str, *values: object) -> None:
        """Add a condition. All conditions must hold."""
        self.parts.append(part)
        self.values.extend(values)

    @property
    def sql(self) -> str:
        """A where clause; empty without conditions."""
        return f" where {' and '.join(self.parts)} " if self.parts else " "


def bucket_conditions(wanted: Filter) -> Conditions:
    """Conditions on a table of buckets. A user matches the bucket's tag, or the users in the bucket."""
    conditions = Conditions()
    for value, tag, inside in (
        (wanted.user, "bucket_user", "users"),
        (wanted.client, "bucket_client_id", "client_ids"),
    ):
        if value is not None:
            # An empty tag means no tag: `--client ''` selects the client that sends an empty id.
            conditions.add(f"(({tag} = ? and {tag} <> '') or list_contains({inside}, ?))", value, value)
    return _with_equal(conditions, broker_id=wanted.broker, quota_type=wanted.type)


def client_conditions(wanted: Filter, time: str = "") -> Conditions:
    """Conditions on a table of clients; `time` is SQL of the time of a row, a timestamp, or empty for all times."""
    given = {"user": wanted.user, "client_id": wanted.client}
    found = _with_equal(Conditions(), **given, broker_id=wanted.broker, quota_type=wanted.type)
    if time:
        add_period(found, wanted, time)
    return found


def _with_equal(conditions: Conditions, **values: object) -> Conditions:
    """The conditions with equality for each column that has a value; None is ignored."""
    for column, value in values.items():
        if value is not None:
            conditions.add(f'"{column}" = ?', value)
    return conditions


def add_period(conditions: Conditions, wanted: Filter, last: str, first: str = "") -> None:
    """Add --since and --until.

    Args:
        conditions: of the query.
        wanted: the filter.
        last: SQL of the last time of a row, a timestamp.
        first: SQL of its first time; empty if it is the same.
    """
    if wanted.since is not None:
        conditions.add(f"{last} >= ?::timestamptz", iso_time(wanted.since.time_ms))
    if wanted.until is not None:
        conditions.add(f"{first or last} < ?::timestamptz", iso_time(wanted.until.time_ms))
