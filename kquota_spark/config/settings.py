"""Every setting of `conf/kquota.yaml`, with its default. The YAML file carries the comments for operators.

Field types drive the loader (`config.loader`): `Duration` values are written `5 s`, `10 min`, `95 ms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NewType

Duration = NewType("Duration", int)
"""A length of time in milliseconds; in YAML a number and a unit: ms, s, min, h, d."""

ASKED = {"is_asked": True}
"""Marks a setting that the brokers are asked for where the file leaves it out, or empty."""


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
class ZooKeeperLogin:
    """Digest login; empty for none."""

    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    """Its first line instead of `password`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """PEM files; without `ca` the system's authorities count."""

    enabled: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Where quotas come from."""

    source: Literal["zookeeper", "admin", "file"] = "zookeeper"
    zookeeper_connect: str = "localhost:2181"
    zookeeper_login: ZooKeeperLogin = field(default_factory=ZooKeeperLogin)
    zookeeper_tls: ZooKeeperTls = field(default_factory=ZooKeeperTls)
    session_timeout: Duration = Duration(6_000)
    connect_timeout: Duration = Duration(15_000)
    known_through_interval: Duration = Duration(1_000)
    apply_lag: Duration = Duration(95)
    """Brokers act on a ZooKeeper edit this long after the node's mtime (measured 90 to 100 ms)."""
    poll_interval: Duration = Duration(2_000)
    """With `admin`: how often the brokers are asked."""
    accept_mass_removal: bool = False
    """Believe the source even if most quotas vanish at once, or its nodes are older than those recorded."""
    file: str = ""
    callback: str = ""
    """`module:Class` of a `model.quota_callback.QuotaCallback`; empty for Kafka's own resolution."""
    callback_options: dict[str, str] = field(default_factory=dict)
    leaders_interval: Duration = Duration(5_000)
    """With a callback: how often the leaders of all partitions are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What the request log does not say about the brokers."""

    version: str = field(default="3.9", metadata=ASKED)
    quota_window_num: int = field(default=11, metadata=ASKED)
    quota_window_size_seconds: int = field(default=1, metadata=ASKED)
    log_time_zone: str = "UTC"
    quota_producer_default: int = 0
    quota_consumer_default: int = 0
    """quota.producer.default and quota.consumer.default of brokers up to 2.8; 0 where not set."""
    ask_interval: Duration = Duration(300_000)
    """How often the brokers are asked for their settings."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets. The other `ASKED` ones are what the brokers say; these numbers if they do not."""


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
