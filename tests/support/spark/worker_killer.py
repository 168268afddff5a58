"""A quota callback that takes its Python worker with it, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from kquota_spark.model.quotas.group_callbacks import GroupedUserCallback
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaType


class Killer(GroupedUserCallback):
    """Kills the process at its first question, unless the file of `killer.mark` is there."""

    def configure(self, configs: Mapping[str, str]) -> None:
        self._mark = Path(configs["killer.mark"])

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: Principal, client_id: str
    ) -> Mapping[str, str]:
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"group": principal.name}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return 900.0
