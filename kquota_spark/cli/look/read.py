"""`kquota violations`, `decisions` and `usage`: what the tables hold, and what they mean.

Times are compared and shown in UTC. Only the columns asked for are read from the files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from kquota_spark.cli.chosen.near_names import empty_text
from kquota_spark.cli.look import usage
from kquota_spark.cli.options import (
    add_filter_options,
    add_output_options,
    add_settings_options,
    add_since,
    bucket_columns,
    bucket_conditions,
    filter_of,
    footer_text,
    legend,
    limit_of,
    limited,
    settings_of,
    spans_days,
    with_agreement,
    with_cluster,
    with_source,
)
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, show
from kquota_spark.formats.text.person_units import (
    clock_time,
    or_dash,
    person_count,
    person_ms,
    person_pair_ms,
    person_percent,
    person_span,
    rate_text,
)
from kquota_spark.schema.harm import EPISODE_REQUESTS
from kquota_spark.store.reading import open_tables

_BUCKET_ORDER = "cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags"
_SIDES_LEGEND = "longest throttle, total delay and throttled requests: by replay / by brokers"
_VIOLATIONS = """
select cluster_id, episode_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags,
       epoch_ms(start_time) as start_time, epoch_ms(end_time) as end_time,
       epoch_ms(last_second) as last_second, end_time is null as is_open, level, rule, limit_per_s,
       peak_rate_per_s, peak_quota_used_percent, violated_seconds, throttled_ms, throttled_requests,
       longest_throttle_ms, observed_throttled_ms, observed_throttled_requests, observed_longest_throttle_ms,
       coalesce(source, 'log') as source, users, client_ids
from violations
"""
_DECISIONS = """
select cluster_id, broker_id, quota_type, bucket_user, bucket_client_id, bucket_tags, epoch_ms(second) as second,
       level, rule, rule_version, limit_per_s, rate_per_s, quota_used_percent, amount, requests,
       throttle_ms, observed_throttle_ms, throttled_requests, observed_throttled_requests,
       total_throttle_ms, observed_total_throttle_ms, unsized_requests,
       coalesce(late, 0) as late, is_certain, is_rules_behind, coalesce(source, 'log') as source,
       users, client_ids
from decisions
"""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `violations`, `decisions` and `usage`."""
    violations = _add(subparsers, "violations", run_violations)
    violations.add_argument("--open", action="store_true", help="only episodes that have not ended")
    _add(subparsers, "decisions", run_decisions)
    by_client = _add(subparsers, "usage", usage.run_usage)
    by_client.add_argument("--by-second", action="store_true", help="every second instead of totals")


def _add(subparsers: Any, name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(name)
    add_settings_options(parser)
    add_output_options(parser)
    add_filter_options(parser)
    parser.set_defaults(run=run)
    return parser


def run_violations(options: argparse.Namespace) -> int:
    """Show episodes, newest first."""
    wanted = filter_of(options)
    where = bucket_conditions(wanted)
    add_since(where, wanted, "coalesce(violations.end_time, violations.last_second)")
    if wanted.is_throttled:
        where.add(f"{EPISODE_REQUESTS} > 0")
    if wanted.is_open:
        where.add("violations.end_time is null")
    sql = f"{_VIOLATIONS}{where.sql}order by start_time desc, {_BUCKET_ORDER}, episode_id"
    when_empty = ""
    with open_tables(settings_of(options, "tables"), "violations") as tables:
        found, has_more = limited(tables, sql, where.values, limit_of(options))
        if not found.rows:
            tables.open("decisions")
            when_empty = empty_text(wanted, "violations", tables, "decisions")
        rows = found.dicts()
        shown = _violation_columns(rows, with_day=spans_days(rows, "start_time"))
        report = Report(
            command="kquota violations",
            columns=found.columns,
            rows=rows,
            shown=with_cluster(rows, with_source(rows, shown)),
            times=frozenset({"start_time", "end_time", "last_second"}),
            footer=legend(rows, footer_text(rows, "start_time", "violation", has_more=has_more)),
            when_empty=when_empty,
            colour=lambda row: Colour.RED if row["is_open"] else None,
        )
        report = with_agreement(report, tables, wanted)
    show(report, options.output)
    return 0


def _violation_columns(rows: Sequence[Row], *, with_day: bool) -> tuple[Shown, ...]:
    throttles = (
        Shown("total delay", lambda row: _harm(row, "throttled_ms", person_ms), note=_source_note(rows)),
        Shown("throttled requests", lambda row: _harm(row, "throttled_requests", person_count), rank=7),
        Shown("longest throttle", lambda row: _harm(row, "longest_throttle_ms", person_ms), rank=11),
    )
    return (
        Shown("start", lambda row: clock_time(row["start_time"], with_day=with_day)),
        Shown("lasted", _lasted, rank=6),
        *bucket_columns(),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=4),
        Shown("peak", lambda row: rate_text(row["quota_type"], row["peak_rate_per_s"]), rank=8),
        Shown("used", lambda row: person_percent(row["peak_quota_used_percent"]), rank=5),
        *(throttles if any(row["source"] != "jmx" for row in rows) else ()),
    )


def _harm(row: Row, name: str, text: Callable[[int], str]) -> str:
    """The broker's figure of an episode; the replay's, where an older release has written it."""
    return or_dash(row[f"observed_{name}"] if _is_by_brokers(row) else row[name], text)


def _is_by_brokers(row: Row) -> bool:
    return row["observed_throttled_ms"] is not None


def _source_note(rows: Sequence[Row]) -> str:
    """Whose figures the harm is."""
    sources = {_is_by_brokers(row) for row in rows if row["source"] != "jmx"}
    whose = "by brokers" if sources == {True} else "by replay" if sources == {False} else (
        "by brokers, by replay in rows of older releases"
    )  # fmt: skip
    return f"total delay, throttled requests: {whose}"


def _lasted(row: Row) -> str:
    return "open" if row["end_time"] is None else person_span(row["end_time"] - row["start_time"])


def run_decisions(options: argparse.Namespace) -> int:
    """Show seconds of buckets, newest first."""
    wanted = filter_of(options)
    where = bucket_conditions(wanted)
    add_since(where, wanted, "decisions.second")
    if wanted.is_throttled:
        where.add(
            "(throttled_requests > 0 or observed_throttled_requests > 0"
            " or (source = 'jmx' and observed_throttle_ms > 0))"
        )
    sql = f"{_DECISIONS}{where.sql}order by decisions.second desc, {_BUCKET_ORDER}, late"
    when_empty = ""
    with open_tables(
        settings_of(options, "tables"), "decisions", newer_than_ms=wanted.newer_than_ms
    ) as tables:
        found, has_more = limited(tables, sql, where.values, limit_of(options))
        if not found.rows:
            when_empty = empty_text(wanted, "decisions", tables, "decisions")
        rows = found.dicts()
        footer = footer_text(rows, "second", "decision", has_more=has_more)
        report = Report(
            command="kquota decisions",
            columns=found.columns,
            rows=rows,
            shown=with_cluster(rows, _decision_columns(with_day=spans_days(rows, "second"))),
            times=frozenset({"second"}),
            footer=legend(rows, footer, _SIDES_LEGEND),
            when_empty=when_empty,
            colour=_decision_colour,
        )
        report = with_agreement(report, tables, wanted)
    show(report, options.output)
    return 0


def _decision_columns(*, with_day: bool) -> tuple[Shown, ...]:
    return (
        Shown("time", lambda row: clock_time(row["second"], with_day=with_day)),
        *bucket_columns(),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=4),
        Shown("rate", lambda row: rate_text(row["quota_type"], row["rate_per_s"]), rank=5),
        Shown("used", lambda row: person_percent(row["quota_used_percent"]), rank=3),
        Shown(
            "longest throttle", lambda row: person_pair_ms(row["throttle_ms"], row["observed_throttle_ms"])
        ),
        Shown(
            "requests",
            lambda row: or_dash(row["requests"], lambda requests: person_count(requests + row["late"])),
            rank=8,
        ),
        Shown("certain", _certain, rank=7),
        Shown(
            "total delay",
            lambda row: person_pair_ms(row["total_throttle_ms"], row["observed_total_throttle_ms"]),
            rank=11,
        ),
        Shown("throttled requests", _throttled_requests, rank=12),
    )


def _throttled_requests(row: Row) -> str:
    sides = (row["throttled_requests"], row["observed_throttled_requests"])
    return " / ".join(or_dash(requests, person_count) for requests in sides)


def _certain(row: Row) -> str:
    return "jmx" if row["source"] == "jmx" else "yes" if row["is_certain"] else "no"


def _decision_colour(row: Row) -> Colour | None:
    if (row["quota_used_percent"] or 0.0) > 100.0:
        return Colour.RED
    return None if row["is_certain"] else Colour.YELLOW
