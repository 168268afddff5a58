"""The windows of the brokers' quotas that the settings describe."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant


def rate_config(settings: Settings) -> RateConfig:
    """The sample ring of `broker.version`, `quota_window_num` and `quota_window_size_seconds`."""
    broker = settings.broker
    variant = RingVariant.of_version(broker.version)
    return RateConfig(broker.quota_window_num, broker.quota_window_size_seconds * 1_000, variant)


def mutation_config(settings: Settings) -> RateConfig:
    """controller.quota.window.*: how much a bucket of controller mutations holds."""
    broker = settings.broker
    return RateConfig(broker.controller_quota_window_num, broker.controller_quota_window_size_seconds * 1_000)
