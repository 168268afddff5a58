"""`kquota violations`: episodes of buckets above their limit, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kquota_spark.cli.options import bucket_columns
from kquota_spark.cli.question import Asked, Flag, Found, Question, by_sql, column, own_column
from kquota_spark.cli.text.render import Colour, Row, Shown
from kquota_spark.formats.text.person_units import or_dash, person_count, person_ms, person_span
from kquota_spark.schema.figures import figures_sql
from kquota_spark.schema.harm import EPISODE_END, EPISODE_REQUESTS
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS

COMMANDS = {
    "violations": (
        "answers",
        "episodes of buckets above their limit",
        "kquota violations --open",
        "kquota violations --user alice --since 1d --until 2h",
    ),
}

_SQL = f"""
select cluster_id, episode_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags,
       epoch_ms(start_time) as start_time, epoch_ms(end_time) as end_time,
       epoch_ms(last_second) as last_second, end_time is null as is_open, level, rule, limit_per_s,
       peak_rate_per_s, peak_quota_used_percent, violated_seconds, {figures_sql(VIOLATIONS)},
       source, users, client_ids
from violations
"""  # noqa: S608 - names of ours
_SHORT = "why_short"
_WHY = Flag("--why", "also the main cause of the first 8 with its part of the delay: see kquota why")
_MOST_EXPLAINED = 8
"""Maximum number of violations with a cause: each takes a replay."""
_HARM = (
    ("total delay", "delay_ms", "delay_by_replay_ms", person_ms, 0),
    ("throttled requests", "throttled_requests", "throttled_requests_by_replay", person_count, 7),
    ("longest throttle", "longest_throttle_ms", "longest_throttle_by_replay_ms", person_ms, 11),
)


def _shown(rows: Sequence[Row]) -> Iterator[Shown]:
    yield Shown("lasted", _lasted, rank=6)
    yield from bucket_columns()
    yield column("limit_per_s", rank=4)
    yield column("peak_rate_per_s", rank=8)
    yield column("peak_quota_used_percent", rank=5)
    if any(row["source"] != "jmx" for row in rows):
        source = _source(rows)
        for title, name, by_replay, text, rank in _HARM:
            harm = partial(_harm, name=name, by_replay=by_replay, text=text)
            yield own_column(title, harm, rank=rank, about=source)


def _lasted(row: Row) -> str:
    return "open" if row["end_time"] is None else person_span(row["end_time"] - row["start_time"])


def _harm(row: Row, name: str, by_replay: str, text: Callable[[int], str]) -> str:
    """The broker's figure of an episode, or that of the replay if the log has none."""
    return or_dash(row[name if _is_by_brokers(row) else by_replay], text)


def _is_by_brokers(row: Row) -> bool:
    return row["delay_ms"] is not None


def _source(rows: Sequence[Row]) -> str:
    """Whether the figures of throttling are by brokers or by replay."""
    sources = {_is_by_brokers(row) for row in rows if row["source"] != "jmx"}
    if len(sources) > 1:
        return "by brokers, by replay where the log has no throttle"
    return "by brokers" if True in sources else "by replay"


_find_rows = by_sql(
    _SQL,
    time=("start_time", "start"),
    period=("violations.start_time", EPISODE_END),
    order="start_time desc, cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags, "
    "episode_id",
    throttled=f"{EPISODE_REQUESTS} > 0",
    noun="violation",
    shown=_shown,
)


def _find(asked: Asked) -> Found:
    """The violations, with the main cause of the first ones if it is asked for."""
    found = _find_rows(asked)
    if _WHY not in asked.flags:
        return found
    rows = [
        {**row, **(_why(asked, row) if place < _MOST_EXPLAINED else {"why": None, "causes": None})}
        for place, row in enumerate(found.rows)
    ]
    why = Shown("why", lambda row: row.get(_SHORT) or "-", is_text=True, keep=32)
    return found._replace(columns=(*found.columns, "why", "causes"), rows=rows, shown=(*found.shown, why))


def _why(asked: Asked, row: Row) -> dict[str, Any]:
    """The main cause of a violation as a sentence and in a few words, and all causes; None if not known."""
    from kquota_spark.reports.scope.shared_rows import BucketName
    from kquota_spark.reports.why.reasons import reasons
    from kquota_spark.reports.why.recorded import Wanted
    from kquota_spark.reports.why.rows import cause_rows
    from kquota_spark.reports.why.sentences import main_sentence, short_text

    bucket = BucketName(
        row["quota_type"], row["bucket_user"], row["bucket_client_id"], row["bucket_tags"] or ""
    )
    end_ms = row["last_second"] + 1_000 if row["end_time"] is None else row["end_time"]
    settings = asked.settings.changed(cluster_id=row["cluster_id"])
    found = reasons(settings, [Wanted(bucket, row["start_time"], end_ms)])
    if not found:
        return {"why": None, "causes": None}
    causes = list(cause_rows(found[0]))
    return {"why": main_sentence(found[0]) or None, _SHORT: short_text(found[0]), "causes": causes}


QUESTION = Question(
    command="violations",
    table=VIOLATIONS,
    find=_find,
    flags=(Flag("--open", "only episodes that have not ended", "violations.end_time is null"), _WHY),
    colour=lambda row: Colour.RED if row["is_open"] else None,
    empty_from=DECISIONS.name,
)
add_commands = QUESTION.add_to
