"""Which rows of a table a command was asked for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from kquota_spark.cli.options.options import Since


@dataclass(frozen=True, slots=True)
class Filter:
    """The options of `add_filter_options`; None where every row will do."""

    user: str | None = None
    client: str | None = None
    broker: int | None = None
    type: str | None = None
    since: Since | None = None
    is_throttled: bool = False
    """Only rows whose requests were throttled."""
    is_open: bool = False
    """Only episodes that have not ended."""

    @property
    def newer_than_ms(self) -> int | None:
        """The --since for `open_tables`, which leaves older files out."""
        return None if self.since is None else self.since.time_ms

    @property
    def is_of_all(self) -> bool:
        """Whether rows of every bucket are wanted, whatever the time."""
        named = (self.user, self.client, self.broker, self.type)
        return all(value is None for value in named) and not (self.is_throttled or self.is_open)

    @property
    def text(self) -> str:
        """The filters as they were given, for a message; empty without any."""
        given = {"user": self.user, "client": self.client, "broker": self.broker, "type": self.type}
        parts = [f"--{name} {value}" for name, value in given.items() if value is not None]
        parts += [] if self.since is None else [f"--since {self.since.text}"]
        parts += ["--throttled"] if self.is_throttled else []
        return " ".join(parts + (["--open"] if self.is_open else []))


def filter_of(options: argparse.Namespace) -> Filter:
    """The filter that a command was given; what the command has no option for filters nothing."""
    given = {name: getattr(options, name, None) for name in ("user", "client", "broker", "type", "since")}
    return Filter(
        **given,
        is_throttled=getattr(options, "throttled", False),
        is_open=getattr(options, "open", False),
    )
