"""The names of delays and throttled requests in answers: one name per figure in JSON and CSV of all commands.

A name without a suffix is the brokers' own figure. `_by_replay` marks a figure of the replay. The columns of tables
keep the names that they were created with, because no release renames a column. So answers rename them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import AGREEMENT, DECISIONS, USAGE, VIOLATIONS

FIGURES: Mapping[str, str] = MappingProxyType({
    "throttle_ms": "throttle time of one request, by brokers, ms",
    "throttle_by_replay_ms": "the same by replay",
    "longest_throttle_ms": "longest throttle time of a request, by brokers, ms",
    "longest_throttle_by_replay_ms": "the same by replay",
    "delay_ms": "total delay: the sum of the throttle times of all requests, by brokers, ms",
    "delay_by_replay_ms": "the same by replay",
    "delay_before_ms": "total delay in the time before a change of a quota, by brokers, ms",
    "delay_after_ms": "the same in the time after it",
    "delay_left_out_ms": "total delay of the buckets that are left out, by brokers, ms",
    "certain_delay_ms": "total delay in certain seconds, by brokers, ms",
    "certain_delay_by_replay_ms": "the same by replay",
    "throttled_requests": "requests with a throttle time above 0, by brokers",
    "throttled_requests_by_replay": "the same by replay",
    "time_throttled_s": "clock time in which a throttle began or still ran, by brokers, whole seconds",
    "time_throttled_by_replay_s": "the same by replay",
    "delay_by_replay_after_ms": "total delay of the recorded requests under the tried quotas, by replay, ms",
    "delay_low_ms": "the least total delay under the tried quotas, over what the log leaves open, by replay, ms",
    "delay_high_ms": "the same, the most; null if the demand is unknown",
    "delay_by_closed_loop_ms": "total delay under the tried quotas, if clients wait for their throttles, ms",
    "delay_by_replay_more_ms": "that less the total delay by replay under the recorded quotas",
    "delay_without_ms": "total delay of the recorded requests without one cause, by replay, ms",
    "throttled_requests_by_replay_after": "throttled requests under the tried quotas, by replay",
    "time_throttled_by_replay_after_s": "time throttled under the tried quotas, by replay, whole seconds",
    "time_throttled_percent": "the time throttled as percent of the period",
})  # fmt: skip
"""The meaning of each figure. The period and the rows that it is of depend on the command."""

_OF_TABLES: Mapping[str, Mapping[str, str]] = MappingProxyType({
    DECISIONS.name: {
        "throttle_ms": "longest_throttle_by_replay_ms",
        "observed_throttle_ms": "longest_throttle_ms",
        "throttled_requests": "throttled_requests_by_replay",
        "observed_throttled_requests": "throttled_requests",
        "total_throttle_ms": "delay_by_replay_ms",
        "observed_total_throttle_ms": "delay_ms",
    },
    VIOLATIONS.name: {
        "throttled_ms": "delay_by_replay_ms",
        "observed_throttled_ms": "delay_ms",
        "throttled_requests": "throttled_requests_by_replay",
        "observed_throttled_requests": "throttled_requests",
        "longest_throttle_ms": "longest_throttle_by_replay_ms",
        "observed_longest_throttle_ms": "longest_throttle_ms",
    },
    USAGE.name: {"observed_throttle_ms": "delay_ms"},
    AGREEMENT.name: {
        "delay_by_brokers_ms": "certain_delay_ms",
        "delay_by_replay_ms": "certain_delay_by_replay_ms",
    },
})  # fmt: skip
"""For each table, the figure of each column that has another name."""


def figure_of(table: Table, column: str) -> str:
    """The name in answers of a column of a table."""
    return _OF_TABLES.get(table.name, {}).get(column, column)


def figures_sql(table: Table) -> str:
    """SQL: the columns of a table that have another name in answers, under that name; for a select list."""
    renamed = _OF_TABLES[table.name]
    return ", ".join(f"{table.name}.{column} as {figure}" for column, figure in renamed.items())
