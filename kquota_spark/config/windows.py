"""The windows of the brokers' quotas, from the settings."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.model.sampled_rate import RateConfig


def mutation_config(settings: Settings) -> RateConfig:
    """controller.quota.window.*: how much a bucket of controller mutations holds."""
    broker = settings.broker
    return RateConfig(broker.controller_quota_window_num, broker.controller_quota_window_size_seconds * 1_000)
