"""What is known of a quota when a person changes it: the last hour's decisions under it, as the guards want them."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Evidence, Quota
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.store.reading import Tables

_HOUR_MS = 3_600_000
_TYPES = {kind.key: kind for kind in QuotaType}
_SECONDS = """
select epoch_ms(min(second)) as from_ms, epoch_ms(max(second)) + 1000 as to_ms, count(*) as seconds,
       count(*) filter (is_certain and not coalesce(is_rules_behind, false)) as certain_seconds,
       count(*) filter (throttled_requests > 0) as throttled_seconds,
       max(rate_per_s) as peak_rate_per_s
from decisions where cluster_id = ? and epoch_ms(second) >= ? and ({which})
"""


def override_evidence(settings: Settings, quota: Quota, now_ms: int) -> Evidence:
    """Seconds of the last hour that this quota decided; where there are none, of its type; else of all.

    A quota that is new to the cluster has no decisions of its own: what it rests on then is that the audit works.

    Raises:
        UserError: the decisions cannot be read.
    """
    since_ms = now_ms - _HOUR_MS
    kind = _TYPES[quota.key].value
    with Tables(settings) as tables:
        tables.open("decisions", since_ms)
        for which, values in (
            ("quota_type = ? and rule = ?", [kind, str(quota.entity)]),
            ("quota_type = ?", [kind]),
            ("true", []),
        ):
            sql = _SECONDS.format(which=which)
            [found] = tables.query(sql, [settings.cluster_id, since_ms, *values]).dicts()
            if found["seconds"]:
                peak = found.pop("peak_rate_per_s")
                is_own = "rule" in which
                return Evidence(
                    **found, numbers={"peak_rate_per_s": peak} if is_own and peak is not None else {}
                )
    return Evidence(since_ms, now_ms, 0, 0, 0)
