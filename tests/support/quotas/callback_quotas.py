"""Principals and quotas over time for the tests of quota callbacks, in few words."""

from __future__ import annotations

from kquota_spark.model.quotas.entities import Entity, Name
from kquota_spark.model.quotas.principals import Principal
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods


def user(name: str) -> Principal:
    return Principal("User", name)


def book(*edits: tuple[Name, Name, QuotaKey, float | None, int]) -> RuleBook:
    return RuleBook(
        rule_periods(
            QuotaChange(Entity(of_user, of_client), key, value, None, at_ms, at_ms)
            for of_user, of_client, key, value, at_ms in edits
        )
    )
