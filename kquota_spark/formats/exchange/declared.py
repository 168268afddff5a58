"""Our own `quotas.yaml` as a set: read as of one moment, written without a beginning and an end.

`formats.quota_files.quota_file` describes the format.
"""

from __future__ import annotations

from kquota_spark.formats.exchange.checks import checked_text, writable
from kquota_spark.formats.quota_files.quota_file import IpLimit, parse_quotas
from kquota_spark.formats.quota_files.quota_file_text import quota_file_text
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, RulePeriod, rule_periods

_IP_KEY = IpQuotaKey.CONNECTION_CREATION_RATE


def read(text: str) -> QuotaSet:
    """The quotas in force after all changes in the file; ValueError with one line per problem."""
    return read_at(text, END_MS - 1)


def read_at(text: str, time_ms: int) -> QuotaSet:
    """The quotas in force at a moment, epoch ms; ValueError with one line per problem."""
    found = parse_quotas(checked_text(text))
    quotas: dict[AnyEntity, dict[AnyKey, float]] = {
        rule.entity: dict(rule.values)
        for rule in rule_periods(found.changes)
        if rule.values and _holds(time_ms, rule.valid_from_ms, rule.valid_to_ms)
    }
    for limit in found.ip_limits:
        if _holds(time_ms, limit.from_ms, limit.to_ms):
            quotas[limit.entity] = {_IP_KEY: float(limit.connections_per_s)}
    return quotas


def _holds(time_ms: int, from_ms: int, to_ms: int | None) -> bool:
    return from_ms <= time_ms and (to_ms is None or time_ms < to_ms)


def write(quotas: QuotaSet) -> str:
    """The text of a quota file; ValueError for entities that it cannot hold, e.g. a user named `<default>`."""
    entries = writable(quotas)
    rules = [
        RulePeriod(entity, values, BEGINNING_MS, None, None)
        for entity, values in entries
        if not isinstance(entity, IpEntity)
    ]
    limits = [
        IpLimit(entity, int(values[_IP_KEY]), BEGINNING_MS, None)
        for entity, values in entries
        if isinstance(entity, IpEntity)
    ]
    return quota_file_text(rules, limits)
