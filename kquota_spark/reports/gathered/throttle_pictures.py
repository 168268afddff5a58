"""Throttles one by one: how long those of each user were, and the replay's beside the broker's."""

from __future__ import annotations

from kquota_spark.reports.scope.audit_report import ThrottlePair, ThrottleSpread
from kquota_spark.reports.scope.report_scope import Scope

MOST_USERS = 8
_STEPS_PER_OCTAVE = 4
# Four bins an octave: some hundred points, whatever the number of rows.
_BIN = f"if({{name}} < 1, 0, round(power(2, round(log2({{name}}) * {_STEPS_PER_OCTAVE}) / {_STEPS_PER_OCTAVE}), 1))"
# Requests that a share consumer sent have no size: there is no replay of them.
_PAIRS = f"""
select {_BIN.format(name="throttle_ms")} as replay_ms, {_BIN.format(name="observed_throttle_ms")} as brokers_ms,
       is_certain, count(*) as seconds
from judged
where is_log and observed_total_throttle_ms is not null and greatest(throttle_ms, observed_throttle_ms) > 0
  and coalesce(unsized_requests, 0) = 0
group by all order by all
"""  # noqa: S608 - names and numbers of ours
_SPREADS = """
select "user", count(*) as requests, sum(observed_throttle_ms)::bigint as throttled_ms,
       quantile_disc(observed_throttle_ms, list_transform(range(101), lambda step: step / 100.0)) as percentiles_ms
from requests
where cluster_id = $1 and kind = 'request' and observed_throttle_ms > 0 and "user" is not null
  and record_time_ms >= $2 and record_time_ms < $3 and coalesce("user" = $4, true)
group by "user" order by throttled_ms desc, "user" limit $5
"""


def throttle_pairs(scope: Scope) -> tuple[ThrottlePair, ...]:
    """The longest throttle of each second and bucket, by replay and by brokers; none where only JMX tells."""
    return tuple(ThrottlePair(**row) for row in scope.rows(_PAIRS))


def throttle_spreads(scope: Scope) -> tuple[ThrottleSpread, ...]:
    """Of the users with the most total delay; none where `requests` keeps no row of a throttled request."""
    asked = scope.asked
    of_users = scope.rows(_SPREADS, scope.cluster_id, asked.from_ms, asked.to_ms, scope.tenant, MOST_USERS)
    return tuple(ThrottleSpread(**row | {"percentiles_ms": tuple(row["percentiles_ms"])}) for row in of_users)
