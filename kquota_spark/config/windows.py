"""The quota windows of the brokers, from the settings."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant


def rate_config(settings: Settings) -> RateConfig:
    """The sample ring for `broker.version`, `quota_window_num` and `quota_window_size_seconds`."""
    broker = settings.broker
    variant = RingVariant.of_version(broker.version)
    return RateConfig(broker.quota_window_num, broker.quota_window_size_seconds * 1_000, variant)


def mutation_config(settings: Settings) -> RateConfig:
    """The windows of controller.quota.window.*: the size of a bucket of controller mutations."""
    broker = settings.broker
    return RateConfig(broker.controller_quota_window_num, broker.controller_quota_window_size_seconds * 1_000)
