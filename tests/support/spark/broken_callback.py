"""A quota callback with a bug, for the tests."""

from __future__ import annotations

from collections.abc import Mapping

from kquota_spark.model.quotas.group_callbacks import GroupedUserCallback
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType


class Broken(GroupedUserCallback):
    """Has no limit for any group."""

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        return {"group": "pay"}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        raise KeyError("no such group")
