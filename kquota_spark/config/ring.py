"""The sample ring of the brokers that the settings describe."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.model.sampled_rate import RateConfig, RingVariant


def rate_config(settings: Settings) -> RateConfig:
    """The ring of `broker.version`, `quota_window_num` and `quota_window_size_seconds`."""
    broker = settings.broker
    variant = RingVariant.of_version(broker.version)
    return RateConfig(broker.quota_window_num, broker.quota_window_size_seconds * 1_000, variant)
