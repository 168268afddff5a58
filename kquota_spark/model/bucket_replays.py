"""Which replay judges which type of quota: the broker's own four managers."""

from __future__ import annotations

from kquota_spark.model.mutation_replay import MutationReplay
from kquota_spark.model.quota_types import QuotaType
from kquota_spark.model.replay import BucketReplay
from kquota_spark.model.request_replay import RequestReplay
from kquota_spark.model.sampled_rate import RateConfig

Replay = BucketReplay | RequestReplay | MutationReplay
"""State of one bucket, moved on by the requests of whole seconds."""


def new_replay(quota_type: QuotaType, config: RateConfig) -> Replay:
    """A bucket that has seen nothing.

    Args:
        quota_type: what it limits.
        config: quota.window.*; for controller mutations controller.quota.window.*.
    """
    if quota_type is QuotaType.REQUEST:
        return RequestReplay(config)
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return MutationReplay(config)
    return BucketReplay(config)


def forget_at_ms(replay: Replay, config: RateConfig) -> int:
    """From when on, without another request, a new replay gives the same verdicts."""
    if isinstance(replay, RequestReplay | MutationReplay):
        return replay.forget_at_ms
    return replay.folded_through_ms + config.horizon_ms


def model_name(quota_type: QuotaType, config: RateConfig) -> str:
    """Short text for tables, e.g. `3.8+/11x1000ms`, `tokens/11x1000ms`."""
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"tokens/{config.num_samples}x{config.window_ms}ms"
    return config.name
