"""The usual cure of a client that slows a broker: a quota of thread time."""

from __future__ import annotations

from kquota_spark.model.interference.suspects import Suspect
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.reports.advice.quota_command import alter_command

_ANONYMOUS = "ANONYMOUS"
_PERCENT_OF_A_THREAD = 100
_LEAST_PERCENT = 1


def request_quota(one: Suspect) -> int:
    """Half of the thread time that a suspect used while others waited, in percent of a thread."""
    return max(round(one.busy_threads * _PERCENT_OF_A_THREAD / 2), _LEAST_PERCENT)


def cure_command(one: Suspect) -> str:
    """A dry run of a request quota for a suspect; empty if it is several clients together."""
    user, client_id = one.client
    named = None if user in ("", _ANONYMOUS) else user
    if named is None and not client_id:
        return ""
    return alter_command(Entity(named, client_id or None), {QuotaKey.REQUEST_PERCENTAGE: request_quota(one)})
