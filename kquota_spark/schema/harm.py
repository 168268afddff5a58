"""Harm as the broker logged it: the SQL that every surface takes its throttle figures from.

In a row of `decisions` or `violations` the broker's own sum counts. Where there is none, the replay's figure counts,
and in rows from JMX that of JMX.
"""

from __future__ import annotations

_IS_REPLAY = "observed_total_throttle_ms is null"
DELAY_MS = "coalesce(observed_total_throttle_ms, total_throttle_ms)"
"""Of a decision: the total delay, ms; null from JMX."""
THROTTLED_REQUESTS = f"if({_IS_REPLAY}, throttled_requests, observed_throttled_requests)"
"""Of a decision: requests with a throttle above 0; null from JMX."""
LONGEST_THROTTLE_MS = f"if({_IS_REPLAY}, throttle_ms, observed_throttle_ms)"
"""Of a decision: the longest throttle, ms; null from JMX."""
IS_THROTTLED = f"coalesce({THROTTLED_REQUESTS} > 0, observed_throttle_ms > 0, false)"
"""Of a decision: whether requests of the second were throttled; from JMX, whether there was a throttle lately."""
_IS_OVER = "quota_used_percent > 100"
IS_VIOLATED = f"""coalesce(
  if({_IS_REPLAY}, {_IS_OVER}, observed_throttled_requests > 0 or ({_IS_OVER} and is_certain)), false)"""
"""Of a decision: whether the second belongs to an episode.

Exactly at the limit is allowed (Kafka's `Quota.acceptable`). The broker's throttle shows it. Without one, a rate above
the limit counts if the replay is certain of it.
"""

CERTAIN_REPLAY_MS = (
    "sum(total_throttle_ms) filter (is_certain and observed_total_throttle_ms is not null)::bigint"
)
"""Of decisions: the total delay by replay where both sources tell it and no verdict is in doubt, ms."""
CERTAIN_BROKER_MS = "sum(observed_total_throttle_ms) filter (is_certain)::bigint"
"""Of the same decisions: the total delay by brokers, ms."""

EPISODE_DELAY_MS = "coalesce(observed_throttled_ms, throttled_ms)"
"""Of a violation: the total delay, ms; null from JMX."""
EPISODE_REQUESTS = "if(observed_throttled_ms is null, throttled_requests, observed_throttled_requests)"
"""Of a violation: requests with a throttle above 0; null from JMX."""
