"""Every setting of `conf/kquota.yaml`, with its default. The YAML file carries the comments for operators.

Field types drive the loader (`config.loader`): `Duration` values are written `5 s`, `10 min`, `95 ms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType

Duration = NewType("Duration", int)
"""A length of time in milliseconds; in YAML a number and a unit: ms, s, min, h, d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Where the request log is read from."""

    bootstrap_servers: str = "localhost:9092"
    topic: str = "kquota.request-log"
    max_lines_per_trigger: int = 1_000_000
    client_id: str = "kquota-audit"
    options: dict[str, str] = field(default_factory=dict)
    """Further consumer properties, e.g. security.protocol, passed through to Spark as `kafka.<name>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Where quotas come from."""

    source: Literal["zookeeper", "file"] = "zookeeper"
    zookeeper_connect: str = "localhost:2181"
    session_timeout: Duration = Duration(6_000)
    connect_timeout: Duration = Duration(15_000)
    known_through_interval: Duration = Duration(1_000)
    apply_lag: Duration = Duration(95)
    """Brokers act on a ZooKeeper edit this long after the node's mtime (measured 90 to 100 ms)."""
    file: str = ""
    callback: str = ""
    """`module:Class` of a `model.quota_callback.QuotaCallback`; empty for Kafka's own resolution."""
    callback_options: dict[str, str] = field(default_factory=dict)
    leaders_interval: Duration = Duration(5_000)
    """With a callback: how often the leaders of all partitions are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What the request log does not say about the brokers."""

    version: str = "3.9"
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    log_time_zone: str = "UTC"
    quota_producer_default: int = 0
    quota_consumer_default: int = 0
    """quota.producer.default and quota.consumer.default of brokers up to 2.8; 0 where not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How the streaming queries run."""

    trigger: Duration = Duration(10_000)
    allowed_lateness: Duration = Duration(30_000)
    judge_lateness: Duration = Duration(600_000)
    allowed_clock_skew: Duration = Duration(60_000)
    episode_gap: Duration = Duration(10_000)
    shuffle_partitions: int = 2
    max_files_per_trigger: int = 100
    raw_text_limit_bytes: int = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Ship:
    """The request-log shipper, `kquota ship`."""

    files: tuple[str, ...] = ()
    """`<broker id>=<path>` each; the path is the live file, rotated ones beside it are followed."""
    state_dir: str = ".kquota/ship"
    client_id: str = "kquota-ship"
    exclude_client_ids: tuple[str, ...] = ("kquota-ship", "kquota-audit")
    heartbeat_interval: Duration = Duration(1_000)
    options: dict[str, str] = field(default_factory=dict)
    """Further producer properties, e.g. security.protocol, sasl.password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. `tables` and `checkpoints` are paths or URIs that Spark and deltalake can both open."""

    cluster_id: str = "kafka"
    tables: str = ".kquota/tables"
    checkpoints: str = ".kquota/checkpoints"
    kafka: Kafka = field(default_factory=Kafka)
    quotas: Quotas = field(default_factory=Quotas)
    broker: Broker = field(default_factory=Broker)
    stream: Stream = field(default_factory=Stream)
    ship: Ship = field(default_factory=Ship)
