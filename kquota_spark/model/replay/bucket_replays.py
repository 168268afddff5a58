"""Which replay judges which type of quota: the broker's own four managers."""

from __future__ import annotations

from typing import Any

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.mutation_replay import FORGET_AFTER_MS, MutationReplay
from kquota_spark.model.replay.replay import BucketReplay
from kquota_spark.model.replay.request_replay import RequestReplay

Replay = BucketReplay | RequestReplay | MutationReplay
"""State of one bucket, moved on by the requests of whole seconds."""


def replay_of(quota_type: QuotaType, config: RateConfig, state: Any = None) -> Replay:
    """A bucket that has seen nothing, or that goes on.

    Args:
        quota_type: what it limits.
        config: quota.window.*; for controller mutations controller.quota.window.*.
        state: `state` of a replay of this type with these settings.
    """
    if quota_type is QuotaType.REQUEST:
        return RequestReplay(config, state)
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return MutationReplay(config, state)
    return BucketReplay(config, state)


def remembers_ms(quota_type: QuotaType, config: RateConfig) -> int:
    """After a pause of so long a bucket is as good as new."""
    return FORGET_AFTER_MS if quota_type is QuotaType.CONTROLLER_MUTATION else config.horizon_ms


def model_name(quota_type: QuotaType, config: RateConfig) -> str:
    """Short text for tables, e.g. `3.8+/11x1000ms`, `tokens/11x1000ms`."""
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"tokens/{config.num_samples}x{config.window_ms}ms"
    return config.name
