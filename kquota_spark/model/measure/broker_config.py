"""The settings of one broker on which verdicts depend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kquota_spark.model.measure.sampled_rate import RingVariant

IBP = "inter.broker.protocol.version"
CALLBACK = "client.quota.callback.class"
_NUMBERS = {
    "quota_window_num": "quota.window.num",
    "quota_window_size_seconds": "quota.window.size.seconds",
    "controller_quota_window_num": "controller.quota.window.num",
    "controller_quota_window_size_seconds": "controller.quota.window.size.seconds",
    "quota_producer_default": "quota.producer.default",
    "quota_consumer_default": "quota.consumer.default",
    "num_io_threads": "num.io.threads",
    "num_network_threads": "num.network.threads",
}
KAFKA_KEYS = (*_NUMBERS.values(), IBP, CALLBACK)
"""The broker settings that are requested."""

_UNLIMITED = 2**63 - 1
_DEFAULTED = "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings of one broker; None where it does not have or report them. Fields are columns of `broker_configs`."""

    broker_id: int | None
    version: str
    version_source: str
    metadata: str | None = None
    quota_window_num: int | None = None
    quota_window_size_seconds: int | None = None
    controller_quota_window_num: int | None = None
    controller_quota_window_size_seconds: int | None = None
    quota_producer_default: int | None = None
    quota_consumer_default: int | None = None
    num_io_threads: int | None = None
    num_network_threads: int | None = None
    quota_callback_class: str | None = None
    source: str = "describe_configs"

    @property
    def sample_ring(self) -> RingVariant:
        """The sample ring of the broker's release."""
        return RingVariant.of_version(self.version)


def described_config(
    broker_id: int, found: Mapping[str, Mapping[str, str | None]], speaks_like: str, *, has_zookeeper: bool
) -> BrokerConfig:
    """The settings in a broker's answer to DescribeConfigs.

    Args:
        broker_id: id of the broker.
        found: `value` and `config_source` by Kafka's key; empty if asking the broker is not allowed.
        speaks_like: the release that has the broker's API versions, e.g. 3.9.
        has_zookeeper: whether the broker offers what only brokers in ZooKeeper mode do.
    """

    def value(key: str) -> str | None:
        return found.get(key, {}).get("value") or None

    numbers: dict[str, Any] = {name: _number(value(key)) for name, key in _NUMBERS.items()}
    version, version_source = speaks_like, "api versions"
    protocol = value(IBP)
    if protocol is not None and found[IBP].get("config_source") == _DEFAULTED:
        version, version_source = protocol.partition("-")[0], IBP
    mode, callback = "zookeeper" if has_zookeeper else "kraft", value(CALLBACK)
    return BrokerConfig(broker_id, version, version_source, mode, quota_callback_class=callback, **numbers)


def _number(text: str | None) -> int | None:
    """The number, None if not set: for static defaults Kafka reports that as the largest number (2^63 - 1)."""
    return None if text is None or int(text) == _UNLIMITED else int(text)
