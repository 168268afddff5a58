"""Every setting of `conf/kquota.yaml`, with its default. The YAML file carries the comments for operators.

Field types drive the loader (`config.loader`): `Duration` values are written `5 s`, `10 min`, `95 ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NewType

from kquota_spark.config.substitution import Section

_PROGRAMS = ("ship", "audit", "collect", "enforcer", "decisions")
Duration = NewType("Duration", int)
"""A length of time in milliseconds; in YAML a number and a unit: ms, s, min, h, d."""

ASKED = {"is_asked": True}
"""Marks a setting that the brokers are asked for where the file leaves it out, or empty."""

NO_KEY = {"is_key": False}
"""Marks a setting that has another place in the file than in `Settings`."""

News = Literal[
    "violation", "plan_waiting", "applied", "rolled_back", "failed", "frozen", "audit_behind", "audit_disagreeing"
]  # fmt: skip
"""Kinds of events that `kquota notify` sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeFields(Section):
    """Fields of the envelope, where they are not the tool's own; `a.b` is b inside of a. Empty: the tool's own."""

    message: str = ""
    broker: str = ""
    timestamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(Section):
    """Where the request log is read from, and how its messages are written.

    One of `topic`, `topics` and `topic_pattern` says which topics; the loader refuses a file that gives two.
    """

    bootstrap_servers: str = "localhost:9092"
    topic: str = "kquota.request-log"
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    """A regular expression for whole names; topics made later are found while the job runs."""
    envelope: Literal[
        "auto", "raw", "filebeat", "fluent-bit", "fluentd", "vector", "logstash", "rsyslog", "json"
    ] = "auto"
    envelope_fields: EnvelopeFields = field(default_factory=EnvelopeFields)
    broker_from: tuple[Literal["header", "key", "field", "topic"], ...] = ("header", "key", "field", "topic")
    """Where a message may say its broker, asked in this order, whatever the order here."""
    broker_ids: dict[str, int] = field(default_factory=dict)
    """Ids of brokers that are named, e.g. by their hosts."""
    broker_in_topic: str = ""
    """A regular expression with one group for whole topic names: the group is the broker's id or name."""
    jmx_topic: str = ""
    """Topic of JMX samples; empty where there is none. With it `topic` may be empty."""
    allow_create_time: bool = False
    """Whether the job reads topics whose messages are stamped by hosts; false: only those that Kafka stamps."""
    max_lines_per_trigger: int = 1_000_000
    client_id: str = "kquota-audit"
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Further consumer properties, e.g. security.protocol, passed through to Spark as `kafka.<name>`."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets: nobody's quotas are altered at an address that is only a default."""

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
        """The topics meant: those named, whether they exist or not, or those of `existing` that match."""
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
    """Its first line instead of `password`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls(Section):
    """PEM files; without `ca` the system's authorities count."""

    enabled: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas(Section):
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
    """`module:Class` of a `model.quotas.quota_callback.QuotaCallback`; empty for Kafka's own resolution."""
    callback_options: dict[str, str] = field(default_factory=dict, repr=False)
    leaders_interval: Duration = Duration(5_000)
    """With a callback: how often the leaders of all partitions are asked for."""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets: see `Kafka.given`."""

    @property
    def stale_after_ms(self) -> int:
        """Age of `known_through` from which on nobody follows the quotas: ten times its interval, and half a minute."""
        interval_ms = self.poll_interval if self.source == "admin" else self.known_through_interval
        return 10 * interval_ms + 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker(Section):
    """What the request log does not say about the brokers."""

    version: str = field(default="3.9", metadata=ASKED)
    quota_window_num: int = field(default=11, metadata=ASKED)
    quota_window_size_seconds: int = field(default=1, metadata=ASKED)
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    log_time_zone: str = "UTC"
    log_time_zones: dict[str, str] = field(default_factory=dict)
    """Zones of single brokers' logs, by broker id, where they are not `log_time_zone`."""
    quota_producer_default: int = 0
    quota_consumer_default: int = 0
    """quota.producer.default and quota.consumer.default of brokers up to 2.8; 0 where not set."""
    ask_interval: Duration = Duration(300_000)
    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that the file sets. The other `ASKED` ones are what the brokers say; these numbers if they do not."""

    @property
    def zones_by_broker(self) -> dict[int, str]:
        """`log_time_zones` by number."""
        return {int(broker_id): zone for broker_id, zone in self.log_time_zones.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Section):
    """How the streaming queries run."""

    trigger: Duration = Duration(5_000)
    allowed_lateness: Duration = Duration(5_000)
    episode_gap: Duration = Duration(10_000)
    shuffle_partitions: int = 2
    state_shards: int = 64
    raw_text_limit_bytes: int = 4_096
    lease_time: Duration = Duration(60_000)
    """On an object store: how long a driver is silent before another one may take its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ship(Section):
    """The request-log shipper, `kquota ship`."""

    files: tuple[str, ...] = ()
    """`<broker id>=<path>` each; the path is the live file, rotated ones beside it are followed."""
    state_dir: str = ".kquota/ship"
    client_id: str = "kquota-ship"
    exclude_client_ids: tuple[str, ...] = tuple(f"kquota-{program}" for program in _PROGRAMS)
    heartbeat_interval: Duration = Duration(1_000)
    options: dict[str, str] = field(default_factory=dict, repr=False)


_DAY = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintain(Section):
    """What `kquota maintain` keeps."""

    retention: dict[str, Duration] = field(
        default_factory=lambda: {
            "requests": Duration(7 * _DAY),
            **dict.fromkeys(("usage", "jmx_samples"), Duration(30 * _DAY)),
            **dict.fromkeys(("decisions", "violations"), Duration(400 * _DAY)),
        }
    )
    """By table; whole UTC dates older than this are deleted. Tables that are not named are kept for ever."""
    file_retention: Duration = Duration(7 * _DAY)
    """How long a file that was replaced or deleted stays for those who still read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Section):
    """The job's own endpoint for Prometheus."""

    port: int = 0
    """0 for none."""
    address: str = "127.0.0.1"
    """Where to listen; 0.0.0.0 for all addresses of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectJmx(Section):
    """The JMX collector, `kquota collect jmx`, and what the job has to know of other collectors."""

    source: Literal["jolokia", "prometheus"] = "jolokia"
    """What answers at the addresses: Jolokia's agents, or pages of jmx_exporter, as those of MSK Open Monitoring."""
    brokers: dict[str, str] = field(default_factory=dict)
    """An agent's address by broker id, e.g. http://kafka1:8778/jolokia; tells the broker of any collector's message."""
    types: dict[str, str] = field(default_factory=dict)
    """MBean types by metric name, where Telegraf's name does not tell: produce or fetch."""
    interval: Duration = Duration(5_000)
    client_id: str = "kquota-collect"
    user: str = ""
    password: str = field(default="", repr=False)
    """Of the agents; none if the user is empty."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Further producer properties, e.g. security.protocol, sasl.password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(Section):
    """Collectors that we bring."""

    jmx: CollectJmx = field(default_factory=CollectJmx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement(Section):
    """How decisions become quotas. What to decide, and how far to go, is in the policy file."""

    policy_file: str = "conf/policy.yaml"
    approval: Literal["anyone", "second_person"] = "anyone"
    """Who may approve a plan: anyone, or only somebody else than who planned it."""
    trigger: Duration = Duration(10_000)
    """How often the job looks, at most; where nothing is decided, half as often."""
    lease_time: Duration = Duration(15_000)
    """After so long without a sign of life another enforcer may act; ZooKeeper: the session's time limit."""
    allow_open_nodes: bool = False
    """Without quotas.zookeeper_login whoever reaches ZooKeeper may take the lease, or end it: only if asked for."""
    lease_topic: str = "kquota.lease"
    """With quotas.source admin: the topic of one partition that says who may act; made if missing."""
    decision_topic: str = ""
    """Compacted topic that tells gateways the quotas, made if missing."""
    gate_silence: Duration = Duration(30_000)
    """After so long without a heartbeat a gate that follows the topic is stale."""
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """Client properties of the enforcer; empty for `kafka.options`."""
    zookeeper_login: ZooKeeperLogin = field(default_factory=ZooKeeperLogin)
    """Digest login of the enforcer; without a user `quotas.zookeeper_login`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Section):
    """Which events go to one receiver. With users or client ids, only those about a bucket or quota of theirs."""

    users: tuple[str, ...] = ()
    """Regular expressions of RE2 for whole names, as in the policy file."""
    client_ids: tuple[str, ...] = ()
    events: tuple[News, ...] = ()
    """Empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Route):
    """JSON by POST, signed with the secret."""

    kind: Literal["webhook"]
    url: str = field(repr=False)
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack(Route):
    """An incoming webhook of Slack; its URL is the secret."""

    kind: Literal["slack"]
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanager(Route):
    """The API v2 of an Alertmanager, which groups and limits by itself."""

    kind: Literal["alertmanager"]
    url: str = field(repr=False)
    """Without `/api/v2/alerts`."""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail(Route):
    """Mail over SMTP."""

    kind: Literal["mail"]
    host: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str
    to: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications(Section):
    """What `kquota notify` sends, and to whom."""

    interval: Duration = Duration(15_000)
    least_delay: Duration = Duration(10_000)
    """Total delay from which on a violation is news."""
    least_used_percent: float = 0.0
    """Likewise its highest percent of the limit."""
    behind_after: Duration = Duration(300_000)
    """Age of the newest line, verdict or quotas from which on the audit is behind."""
    group_wait: Duration = Duration(30_000)
    """How long events are collected for one message."""
    messages_per_hour: int = 20
    """Of one route; events beyond it wait, and share the next message."""
    routes: dict[str, Webhook | Slack | Alertmanager | Mail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve(Section):
    """Who may look at the pages of `kquota serve`."""

    token: str = field(default="", repr=False)
    """Opens every page, 16 characters or more; empty for none."""
    user_header: str = ""
    """In which a reverse proxy names the user, e.g. X-Forwarded-User; empty for none."""
    proxy_secret: str = field(default="", repr=False)
    """The proxy sends it as X-Kquota-Proxy-Secret, 16 characters or more; without it the user header is ignored."""
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses whose header counts."""
    hosts: tuple[str, ...] = ()
    """Host names by which browsers open the pages, beside loopback and the address that it listens on."""
    operators: tuple[str, ...] = ()
    """Users of that header who see every page; all others see their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Section):
    """The section `tables`, where it is more than a location."""

    location: str = ".kquota/tables"
    requests: Literal["all", "throttled", "unreadable"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Section):
    """All settings. `tables` and `checkpoints` are paths or URIs that Spark and deltalake can both open."""

    cluster_id: str = "kafka"
    tables: str = ".kquota/tables"
    kept_requests: Literal["all", "throttled", "unreadable"] = field(default="all", metadata=NO_KEY)
    """`tables.requests` of the file: which lines the table `requests` keeps a row for."""
    checkpoints: str = ".kquota/checkpoints"
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """Access to an object store, under deltalake's names; `io.storage` says what Spark gets."""
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
    """Path of the file that they come from, for messages; empty for the built-in ones."""
    serve: Serve = field(default_factory=Serve)
