"""The first line of `kquota status`: whether the audit runs, how far behind it is, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.status.part import Part, State, audit_text
from kquota_spark.cli.top.age import age_of, length_text, stale_after_ms
from kquota_spark.config.settings import Settings
from kquota_spark.store.reading import utc_text

_DAY_MS = 86_400_000


class Verdict(NamedTuple):
    """The answer of the whole screen."""

    text: str
    """One line."""
    is_running: bool
    """Whether the audit runs."""
    is_ok: bool
    """Whether every part is well."""


def verdict(
    settings: Settings,
    parts: Sequence[Part],
    newest_ms: int | None,
    place: SettingsPlace,
    now_ms: int,
    *,
    has_tables: bool,
) -> Verdict:
    """The verdict of all parts.

    Args:
        settings: the cluster's id, and how often the job writes.
        parts: with `job` and `tables`.
        newest_ms: newest second of `decisions`, epoch ms; None without one, or without tables.
        place: the settings as the caller named them, for the next command.
        now_ms: epoch ms.
        has_tables: whether a table of the audit exists, even if it cannot be read.
    """
    by_name = {part.part: part for part in parts}
    job, tables = by_name["job"], by_name["tables"]
    wrong = [part.part for part in parts if not part.state.is_well and not part.follows]
    is_running = job.state is not State.FAIL
    if tables.state is State.FAIL and not is_running and has_tables:
        text = tables.figure
    elif not is_running and newest_ms is None:
        text = f"nothing has been audited yet: start {audit_text(place)}"
    elif not is_running:
        text = f"not running since {_since_text(job.as_of_ms or now_ms, now_ms)}: start {audit_text(place)}"
    else:
        rest = f"; not ok: {', '.join(wrong)}" if wrong else ", everything is ok"
        text = f"running, {_behind_text(settings, newest_ms, now_ms)}{rest}"
    return Verdict(f"{settings.cluster_id}: {text}", is_running, not wrong)


def _behind_text(settings: Settings, newest_ms: int | None, now_ms: int) -> str:
    if newest_ms is None:
        return "nothing has been audited yet"
    age = age_of(newest_ms, now_ms, stale_after_ms(settings.stream))
    return f"newest second {age.ago_text}" if age.is_stale else f"{length_text(age.age_ms)} behind"


def _since_text(time_ms: int, now_ms: int) -> str:
    """`14:56:21 UTC (63 min)`, with the day unless it is today's."""
    text = utc_text(time_ms)
    if time_ms // _DAY_MS == now_ms // _DAY_MS:
        text = text.partition(" ")[2]
    return f"{text} ({length_text(max(now_ms - time_ms, 0))})"
