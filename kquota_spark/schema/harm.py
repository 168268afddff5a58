"""Harm as the broker logged it: the SQL from which every page, command and export takes its throttle figures.

In a row of `decisions` or `violations`, the broker's own sum counts. If there is none, the figure of the replay counts,
and in rows from JMX that of JMX.
"""

from __future__ import annotations

_IS_REPLAY = "observed_total_throttle_ms is null"
DELAY_MS = "coalesce(observed_total_throttle_ms, total_throttle_ms)"
"""Total delay of a decision, ms; null from JMX."""
THROTTLED_REQUESTS = f"if({_IS_REPLAY}, throttled_requests, observed_throttled_requests)"
"""Number of requests of a decision with a throttle above 0; null from JMX."""
LONGEST_THROTTLE_MS = f"if({_IS_REPLAY}, throttle_ms, observed_throttle_ms)"
"""Longest throttle of a decision, ms; null from JMX."""
IS_THROTTLED = f"coalesce({THROTTLED_REQUESTS} > 0, observed_throttle_ms > 0, false)"
"""Whether requests of a decision's second were throttled; from JMX, whether there was a throttle recently."""
HAS_VERDICT = "coalesce(requests, 1) > 0"
"""Whether a decision has requests that were judged in time: not a row of late requests alone. Each row from JMX has."""
_IS_OVER = "quota_used_percent > 100"
IS_VIOLATED = f"""coalesce(
  if({_IS_REPLAY}, {_IS_OVER}, observed_throttled_requests > 0 or ({_IS_OVER} and is_certain)), false)"""
"""Whether the second of a decision belongs to an episode.

A rate exactly at the limit is allowed (Kafka's `Quota.acceptable`). The broker's throttle shows a violation. Without a
throttle, a rate above the limit counts if the replay is certain of it.
"""


def mute_end_ms(second_ms: str, longest_ms: str, is_log: str) -> str:
    """SQL: the end of the last throttle that began in a second, epoch ms: whole seconds, at least one.

    A decision does not have the place of a throttle within its second. JMX does not show single throttles. In Python,
    `model.measure.muted_seconds` has the same rule. A test holds the two together.

    Args:
        second_ms: SQL of the start of the second, epoch ms.
        longest_ms: SQL of the longest throttle in it, ms.
        is_log: SQL of whether the log is the source.
    """
    return f"({second_ms} + if({is_log}, greatest(1, ceil(coalesce({longest_ms}, 0) / 1000.0)), 1)::bigint * 1000)"


def throttled_spans(key: str, rows: str) -> str:
    """SQL of common tables, the last one `spread`: the clock time throttled of each key, in spans that never overlap.

    Its columns are those of the key, `start_ms` and `end_ms`. A span is empty if it does not start before its end.

    Args:
        key: columns of the key, with commas.
        rows: SQL of rows with the key, `second_ms`, `is_log`, `longest_ms` (longest throttle) and `is_throttled`.
    """
    return f"""
held as (
  select {key}, second_ms, bool_or(is_log) as is_log,
         max({mute_end_ms("second_ms", "longest_ms", "is_log")}) as end_ms
  from {rows} where is_throttled group by all
), spread as (
  select *, greatest(second_ms, coalesce(max(end_ms) over (
    partition by {key} order by second_ms rows between unbounded preceding and 1 preceding), 0)) as start_ms
  from held
)"""  # noqa: S608 - names of ours


def time_throttled(key: str, rows: str) -> str:
    """SQL of common tables, the last one `of_time`: the clock time throttled of each key, in `time_throttled_s`.

    A second counts if a throttle began in it or still ran, and once for all brokers and buckets of the key. The SQL has
    one `?`: the end of the period, epoch ms.

    Args:
        key: columns of the key, with commas.
        rows: SQL of rows as `throttled_spans` needs them.
    """
    return f"""{throttled_spans(key, rows)}, of_time as (
  select {key}, (sum(greatest(0, least(end_ms, ?) - start_ms)) // 1000)::bigint as time_throttled_s
  from spread group by all
)"""  # noqa: S608 - names of ours


CERTAIN_REPLAY_MS = (
    "sum(total_throttle_ms) filter (is_certain and observed_total_throttle_ms is not null)::bigint"
)
"""Total delay of decisions by replay, ms, if both sources report it and no verdict is in doubt."""
CERTAIN_BROKER_MS = "sum(observed_total_throttle_ms) filter (is_certain)::bigint"
"""Total delay of the same decisions by brokers, ms."""


def episode_end_ms(last_ms: str, muted_until_ms: str) -> str:
    """SQL: the end of an episode, epoch ms: that of its last second, or of the last throttle in it if that is later.

    Args:
        last_ms: SQL of the start of the last violated second, epoch ms.
        muted_until_ms: SQL of the largest `mute_end_ms` of its seconds; null if it is not known.
    """
    return f"greatest({last_ms} + 1000, {muted_until_ms})"


_END_SO_FAR_MS = episode_end_ms("epoch_ms(violations.last_second)", "epoch_ms(violations.muted_until)")
EPISODE_END = f"coalesce(violations.end_time, make_timestamptz({_END_SO_FAR_MS} * 1000))"
"""The end of a violation, or of what is known of it so far: a timestamp."""
EPISODE_DELAY_MS = "coalesce(observed_throttled_ms, throttled_ms)"
"""Total delay of a violation, ms; null from JMX."""
EPISODE_REQUESTS = "if(observed_throttled_ms is null, throttled_requests, observed_throttled_requests)"
"""Number of requests of a violation with a throttle above 0; null from JMX."""
