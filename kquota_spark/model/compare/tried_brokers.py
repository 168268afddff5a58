"""Brokers of another version or with other quota windows: their sample ring, and what else their version changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kquota_spark.model.measure.broker_version import major_minor
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant

_STATIC_DEFAULTS_END = (3, 0)
"""First version without `quota.producer.default` and `quota.consumer.default` (KAFKA-12591)."""
_KRAFT_METADATA_BEGINS, _METADATA_ENDS = (4, 0), (5, 0)
"""Versions between which KRaft brokers give a quota callback the metadata of the cluster (KAFKA-18225, KAFKA-19566)."""


@dataclass(frozen=True, slots=True)
class TriedBrokers:
    """Settings of brokers that differ from the recorded ones; None is a setting that stays.

    Raises:
        ValueError: the version does not begin with major.minor.
    """

    version: str | None = None
    window_num: int | None = None
    window_size_s: int | None = None
    is_kraft: bool = False
    """Whether they are of KRaft for certain."""

    def __post_init__(self) -> None:
        if self.version is not None:
            major_minor(self.version)

    @property
    def is_any(self) -> bool:
        """Whether some setting differs."""
        return self != AS_RECORDED

    @property
    def has_static_defaults(self) -> bool:
        """Whether the brokers read the static defaults of their properties, if the recorded ones do."""
        return self.version is None or major_minor(self.version) < _STATIC_DEFAULTS_END

    def gives_metadata(self, recorded_version: str) -> bool:
        """Whether a quota callback gets to know which partitions the brokers lead.

        Brokers with ZooKeeper give it. KRaft brokers do from 4.0 to 4.x.

        Args:
            recorded_version: version of the recorded brokers.
        """
        version = major_minor(self.version or recorded_version)
        is_kraft = self.is_kraft or version >= _KRAFT_METADATA_BEGINS
        return not is_kraft or _KRAFT_METADATA_BEGINS <= version < _METADATA_ENDS

    def ring(self, recorded: RateConfig) -> RateConfig:
        """The sample ring of a broker after the change, from its recorded one."""
        variant = recorded.variant if self.version is None else RingVariant.of_version(self.version)
        return replace(
            recorded,
            variant=variant,
            num_samples=self.window_num or recorded.num_samples,
            window_ms=self.window_size_s * 1_000 if self.window_size_s else recorded.window_ms,
        )


AS_RECORDED = TriedBrokers()
"""Brokers that stay as they are."""
