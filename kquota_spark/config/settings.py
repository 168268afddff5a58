"""Every setting of `conf/kquota.yaml`, with its default. The YAML file carries the comments for operators.

Field types drive the loader (`config.loader`), with the rules of `config.rules`. `Duration` values are written `5 s`,
`10 min`, `95 ms`. A field without `repr` is a secret: no message shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from kquota_spark.config.routes import Notifications
from kquota_spark.config.rules import (
    AtLeast,
    BrokerId,
    BrokerVersion,
    Duration,
    Port,
    Positive,
    PositiveDuration,
    Root,
    TimeZone,
)
from kquota_spark.config.substitution import Section

_PROGRAMS = ("ship", "audit", "collect", "enforcer", "decisions")
ASKED = {"is_asked": True}
"""Marks a setting that is queried from the brokers if the file omits it or leaves it empty."""

NO_KEY = {"is_key": False}
"""Marks a setting that is elsewhere in the file than in `Settings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeFields(Section):
    """Names of the envelope's fields; empty for the shipping tool's own name. `a.b` is b inside a."""

    message: str = ""
    broker: str = ""
    timestamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(Section):
    """The source of the request log; one of `topic`, `topics` and `topic_pattern` names the topics, never two."""

    bootstrap_servers: str = "localhost:9092"
    topic: str = "kquota.request-log"
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    """A regular expression for whole names; the running job also finds topics that are created later."""
    envelope: Literal[
        "auto", "raw", "filebeat", "fluent-bit", "fluentd", "vector", "logstash", "rsyslog", "json"
    ] = "auto"
    envelope_fields: EnvelopeFields = field(default_factory=EnvelopeFields)
    broker_from: tuple[Literal["header", "key", "field", "topic"], ...] = ("header", "key", "field", "topic")
    """Places in which a message may name its broker, always checked in this default order."""
    broker_ids: dict[str, int] = field(default_factory=dict)
    """Broker ids by name, for brokers that messages name differently, e.g. by host."""
    broker_in_topic: str = ""
    """A regular expression for whole topic names; its only group is the broker's id or name."""
    jmx_topic: str = ""
    """Topic of JMX samples; empty for none. If it is set, `topic` may be empty."""
    allow_create_time: bool = False
    """Whether the job also reads topics with message times set by hosts; false: only those set by Kafka."""
    max_lines_per_trigger: Positive = 1_000_000
    client_id: str = "kquota-audit"
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Further consumer properties, e.g. security.protocol, passed through to Spark as `kafka.<name>`."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets: quotas are never altered at an address that is only a default."""

    @property
    def has_log(self) -> bool:
        """Whether there is a request log; a cluster may be audited by JMX alone."""
        return bool(self.topic_pattern or self.topics or self.topic)

    @property
    def subscription(self) -> tuple[Literal["subscribe", "subscribePattern"], str]:
        """Spark's option for the topics, and its value."""
        if self.topic_pattern:
            return "subscribePattern", self.topic_pattern
        return "subscribe", ",".join(self.topics or (self.topic,))

    def log_topics(self, existing: Iterable[str]) -> list[str]:
        """The topics of the log: the named ones, whether they exist or not, or those of `existing` that match."""
        if not self.has_log:
            return []
        if not self.topic_pattern:
            return list(self.topics or (self.topic,))
        return sorted(name for name in existing if re.fullmatch(self.topic_pattern, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperLogin(Section):
    """Digest login; empty for none."""

    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    """A file; its first line is used instead of `password`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls(Section):
    """PEM files; without `ca` the system's authorities are trusted."""

    enabled: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas(Section):
    """The source of quotas."""

    source: Literal["zookeeper", "admin", "file"] = "zookeeper"
    zookeeper_connect: str = "localhost:2181"
    zookeeper_login: ZooKeeperLogin = field(default_factory=ZooKeeperLogin)
    zookeeper_tls: ZooKeeperTls = field(default_factory=ZooKeeperTls)
    session_timeout: PositiveDuration = Duration(6_000)
    connect_timeout: PositiveDuration = Duration(15_000)
    known_through_interval: PositiveDuration = Duration(1_000)
    apply_lag: Duration = Duration(95)
    """Brokers act on a ZooKeeper edit this long after the node's mtime (measured 90 to 100 ms)."""
    poll_interval: PositiveDuration = Duration(2_000)
    """With `admin`: time between two queries of the brokers."""
    accept_mass_removal: bool = False
    """Accept the source's data even if most quotas vanish at once, or its nodes are older than those recorded."""
    file: str = ""
    callback: str = ""
    """`module:Class` of a `model.quotas.quota_callback.QuotaCallback`; empty for Kafka's own resolution."""
    callback_options: dict[str, str] = field(default_factory=dict, repr=False)
    leaders_interval: PositiveDuration = Duration(5_000)
    """With a callback: time between two queries of the leaders of all partitions."""
    shadow: str = ""
    """Path of a file of quotas, in any format of import, that is judged beside those in force; empty for none."""
    shadow_name: str = ""
    """Name of the shadow quotas in tables; empty for that of the file."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets: see `Kafka.given`."""

    @property
    def stale_after_ms(self) -> int:
        """Age of `known_through`, ms, that means that no watcher runs: ten times its interval, plus 30 s."""
        interval_ms = self.poll_interval if self.source == "admin" else self.known_through_interval
        return 10 * interval_ms + 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker(Section):
    """Facts about the brokers that the request log does not contain."""

    version: BrokerVersion = field(default="3.9", metadata=ASKED)
    quota_window_num: Positive = field(default=11, metadata=ASKED)
    quota_window_size_seconds: Positive = field(default=1, metadata=ASKED)
    controller_quota_window_num: Positive = 11
    controller_quota_window_size_seconds: Positive = 1
    log_time_zone: TimeZone = "UTC"
    log_time_zones: dict[BrokerId, TimeZone] = field(default_factory=dict)
    """Time zones of logs by broker id, for brokers with another zone than `log_time_zone`."""
    quota_producer_default: int = 0
    quota_consumer_default: int = 0
    """quota.producer.default and quota.consumer.default of brokers up to 2.8; 0 if not set."""
    ask_interval: PositiveDuration = Duration(300_000)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets. For the other `ASKED` ones the brokers' values are used, else these defaults."""

    @property
    def zones_by_broker(self) -> dict[int, str]:
        """`log_time_zones` by the broker id as a number."""
        return {int(broker_id): zone for broker_id, zone in self.log_time_zones.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Section):
    """Settings of the streaming queries."""

    trigger: PositiveDuration = Duration(5_000)
    allowed_lateness: PositiveDuration = Duration(5_000)
    episode_gap: Duration = Duration(10_000)
    shuffle_partitions: Positive = 2
    state_shards: Positive = 64
    raw_text_limit_bytes: Positive = 4_096
    lease_time: Annotated[Duration, AtLeast(3_000, "3 s")] = Duration(60_000)
    """On an object store: silence of a driver after which another one may take its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ship(Section):
    """The request-log shipper, `kquota ship`."""

    files: tuple[str, ...] = ()
    """Entries `<broker id>=<path>`: the path of the live file; rotated files beside it are read too."""
    state_dir: str = ".kquota/ship"
    client_id: str = "kquota-ship"
    exclude_client_ids: tuple[str, ...] = tuple(f"kquota-{program}" for program in _PROGRAMS)
    heartbeat_interval: PositiveDuration = Duration(1_000)
    options: dict[str, str] = field(default_factory=dict, repr=False)


_DAY = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintain(Section):
    """What `kquota maintain` keeps, and for how long."""

    retention: dict[str, Duration] = field(
        default_factory=lambda: {
            "requests": Duration(7 * _DAY),
            **dict.fromkeys(("usage", "jmx_samples", "shadow_decisions"), Duration(30 * _DAY)),
            **dict.fromkeys(("decisions", "violations", "causes"), Duration(400 * _DAY)),
            **dict.fromkeys(("budget_days", "demand_days"), Duration(400 * _DAY)),
        }
    )
    """Retention by table: whole UTC dates older than this are deleted. Tables without an entry are kept forever."""
    file_retention: Annotated[Duration, AtLeast(_DAY, "24 h")] = Duration(7 * _DAY)
    """How long a replaced or deleted file stays: for readers of older snapshots, and until the driver commits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Section):
    """The job's own endpoint for Prometheus."""

    port: Port = 0
    """0 for no endpoint."""
    address: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all addresses of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectJmx(Section):
    """The JMX collector, `kquota collect jmx`, and what the job needs for messages of other collectors."""

    source: Literal["jolokia", "prometheus"] = "jolokia"
    """What runs at the addresses: Jolokia's agents, or jmx_exporter pages such as those of MSK Open Monitoring."""
    brokers: dict[str, str] = field(default_factory=dict)
    """Agent addresses by broker id, e.g. http://kafka1:8778/jolokia; they also identify the broker of a message."""
    types: dict[str, str] = field(default_factory=dict)
    """MBean types (produce or fetch) by metric name, for Telegraf names that do not contain the type."""
    interval: PositiveDuration = Duration(5_000)
    client_id: str = "kquota-collect"
    user: str = ""
    password: str = field(default="", repr=False)
    """Password of the agents; unused if the user is empty."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Further producer properties, e.g. security.protocol, sasl.password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(Section):
    """Collectors that are part of kquota."""

    jmx: CollectJmx = field(default_factory=CollectJmx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement(Section):
    """How decisions become quotas. The policy file contains what to decide and the bounds."""

    policy_file: str = "conf/policy.yaml"
    approval: Literal["anyone", "second_person"] = "anyone"
    """Who may approve a plan: anyone, or only a person other than its author."""
    trigger: PositiveDuration = Duration(10_000)
    """Shortest time between two checks of the job; twice as long while no decisions arrive."""
    lease_time: PositiveDuration = Duration(15_000)
    """Silence of an enforcer after which another one may act; with ZooKeeper the session's time limit."""
    allow_open_nodes: bool = False
    """Run without quotas.zookeeper_login, although anyone who reaches ZooKeeper may then take or end the lease."""
    lease_topic: str = "kquota.lease"
    """With quotas.source admin: the topic of one partition that decides which enforcer may act; made if missing."""
    decision_topic: str = ""
    """Compacted topic that publishes the quotas for gateways; made if missing."""
    gate_silence: PositiveDuration = Duration(30_000)
    """Time without a heartbeat after which a gate that follows the topic is stale."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Client properties of the enforcer; empty for `kafka.options`."""
    zookeeper_login: ZooKeeperLogin = field(default_factory=ZooKeeperLogin)
    """Digest login of the enforcer; without a user `quotas.zookeeper_login`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve(Section):
    """Access to the pages of `kquota serve`."""

    token: str = field(default="", repr=False)
    """Token that opens every page, 16 characters or more; empty for none."""
    user_header: str = ""
    """Header in which a reverse proxy names the user, e.g. X-Forwarded-User; empty for none."""
    proxy_secret: str = field(default="", repr=False)
    """The proxy sends it as X-Kquota-Proxy-Secret, 16 characters or more; without it the user header is ignored."""
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses of proxies from which the user header is accepted."""
    hosts: tuple[str, ...] = ()
    """Host names by which browsers open the pages, besides loopback and the address that it listens on."""
    operators: tuple[str, ...] = ()
    """Users of that header who may see every page; all others see only their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Section):
    """The section `tables`, if it is more than a location."""

    location: Root = ".kquota/tables"
    requests: Literal["all", "throttled", "unreadable"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Section):
    """All settings. `tables` and `checkpoints` are paths or URIs that Spark and deltalake can both open."""

    cluster_id: str = "kafka"
    tables: Root = ".kquota/tables"
    kept_requests: Literal["all", "throttled", "unreadable"] = field(default="all", metadata=NO_KEY)
    """`tables.requests` of the file: the lines that have a row of their own in the table `requests`."""
    checkpoints: Root = ".kquota/checkpoints"
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """Access to an object store, under deltalake's names; `store.storage` translates them for Spark."""
    kafka: Kafka = field(default_factory=Kafka)
    quotas: Quotas = field(default_factory=Quotas)
    broker: Broker = field(default_factory=Broker)
    stream: Stream = field(default_factory=Stream)
    ship: Ship = field(default_factory=Ship)
    maintain: Maintain = field(default_factory=Maintain)
    metrics: Metrics = field(default_factory=Metrics)
    collect: Collect = field(default_factory=Collect)
    enforcement: Enforcement = field(default_factory=Enforcement)
    notifications: Notifications = field(default_factory=Notifications)
    file: str = field(default="", compare=False, metadata=NO_KEY)
    """Path of the settings file, for messages; empty for the built-in defaults."""
    serve: Serve = field(default_factory=Serve)
    owners: str = ""
    """Path of the file with the owners of clients; empty for none."""
