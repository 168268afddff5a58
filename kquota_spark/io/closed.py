"""Through when the tables are closed: no query will write an older second any more."""

from __future__ import annotations

from datetime import UTC, datetime

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.io.checkpoints import SOURCES, read_below
from kquota_spark.io.storage import delta_table

_FOLLOWERS = ("judge", "episodes")
"""MEASURE closes seconds in order: what its newest row follows is closed. These two follow it."""


def closed_through_ms(settings: Settings) -> int | None:
    """Every second before this time (epoch ms) has been measured, judged and folded; None for none yet.

    A table may be read further than that, but not less. Without a checkpoint to look at (a job that was never
    started here), the newest second of the table counts: then nobody reads it.

    Raises:
        UserError: a table or a checkpoint cannot be read.
    """
    ends = []
    for hop in _FOLLOWERS:
        try:
            below = read_below(settings, hop)
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"checkpoint {settings.checkpoints}/{hop} cannot be read: {reason}") from error
        ends.append(newest_second_ms(settings, SOURCES[hop], None if below is None else below - 1))
    known = [end for end in ends if end is not None]
    return min(known) + 1_000 if len(known) == len(ends) else None


def newest_second_ms(settings: Settings, name: str, version: int | None = None) -> int | None:
    """The newest second of a table, by the statistics of its files; None if it holds nothing."""
    table = delta_table(settings, name, version)
    actions = table.get_add_actions(flatten=True)
    if "max.second" not in actions.schema.names:
        return None
    newest = [time for time in actions.column("max.second").to_pylist() if time is not None]
    return max(map(_epoch_ms, newest), default=None)


def _epoch_ms(time: datetime) -> int:
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
