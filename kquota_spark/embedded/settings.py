"""The configuration files of the embedded servers, as text.

Every path in them is relative to the server's own directory, which is its working directory: a path with a
comma or a blank cannot break a property. The request logger is Kafka's own of `config/log4j.properties`, at
DEBUG.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The brokers themselves log in as this user when there are users.
BROKER_USER = "kquota-broker"

_OUTPUT = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_REQUESTS = """\
log4j.logger.kafka.request.logger=DEBUG, requestAppender
log4j.additivity.kafka.request.logger=false
log4j.appender.requestAppender.File=kafka-request.log
log4j.appender.requestAppender.layout=org.apache.log4j.PatternLayout
log4j.appender.requestAppender.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_HOURLY = """\
log4j.appender.requestAppender=org.apache.log4j.DailyRollingFileAppender
log4j.appender.requestAppender.DatePattern='.'yyyy-MM-dd-HH
"""
_BY_SIZE = """\
log4j.appender.requestAppender=org.apache.log4j.RollingFileAppender
log4j.appender.requestAppender.MaxFileSize={bytes}
log4j.appender.requestAppender.MaxBackupIndex={files}
"""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a test or the demo may choose about its brokers.

    Attributes:
        users: passwords by name; with any, clients log in with SASL/PLAIN, without, everyone is ANONYMOUS.
        quota_window_num: Kafka's quota.window.num, for controller mutations too.
        quota_window_size_s: Kafka's quota.window.size.seconds, for controller mutations too.
        request_log_bytes: roll the request log at this size; None rolls it hourly, as Kafka's own file does.
        request_log_files: how many rolled files are kept; only with `request_log_bytes`.
        properties: anything else for server.properties; wins over what is set here.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    quota_window_num: int = 11
    quota_window_size_s: int = 1
    request_log_bytes: int | None = None
    request_log_files: int = 10
    properties: Mapping[str, str] = field(default_factory=dict)


def zookeeper_properties(port: int) -> str:
    """The text of zoo.cfg."""
    return java_properties(
        {
            "dataDir": "data",
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            # Short ticks let a test ask for a session that expires within a second.
            "tickTime": "500",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            # Its web console would take port 8080.
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,stat,mntr",
        }
    )


def broker_properties(
    broker_id: int, port: int, zookeeper: str, settings: BrokerSettings, broker_password: str
) -> str:
    """The text of server.properties."""
    protocol = "SASL_PLAINTEXT" if settings.users else "PLAINTEXT"
    windows = {"num": settings.quota_window_num, "size.seconds": settings.quota_window_size_s}
    properties = {
        "broker.id": str(broker_id),
        "listeners": f"{protocol}://127.0.0.1:{port}",
        "security.inter.broker.protocol": protocol,
        "zookeeper.connect": zookeeper,
        # A killed broker stays registered until its session ends, and only then may it start again.
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "60000",
        "log.dirs": "data",
        "log.cleaner.enable": "false",
        "log.index.size.max.bytes": "1048576",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # Brokers that stop together cannot hand over to each other: one try, or stopping takes fifteen
        # seconds.
        "controlled.shutdown.max.retries": "1",
        "controlled.shutdown.retry.backoff.ms": "200",
    }
    for owner in ("quota", "controller.quota"):
        properties |= {f"{owner}.window.{name}": str(value) for name, value in windows.items()}
    if settings.users:
        properties |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_line(settings.users, broker_password),
        }
    return java_properties({**properties, **settings.properties})


def log4j_properties(settings: BrokerSettings | None) -> str:
    """The text of log4j.properties; None is ZooKeeper's, which has no requests to log."""
    if settings is None:
        return _OUTPUT
    if settings.request_log_bytes is None:
        return _OUTPUT + _REQUESTS + _HOURLY
    return (
        _OUTPUT
        + _REQUESTS
        + _BY_SIZE.format(bytes=settings.request_log_bytes, files=settings.request_log_files)
    )


def jaas_line(users: Mapping[str, str], broker_password: str) -> str:
    """The login module of SASL/PLAIN with every user; names and passwords may hold any character."""
    options = {"username": BROKER_USER, "password": broker_password, f"user_{BROKER_USER}": broker_password}
    options |= {f"user_{name}": password for name, password in users.items()}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return " ".join([module, *(f"{_quoted(key)}={_quoted(value)}" for key, value in options.items())]) + ";"


def java_properties(properties: Mapping[str, str]) -> str:
    """The text of a properties file; Java reads Latin-1, so what is not ASCII is escaped in values."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(value: str) -> str:
    units = value.encode("utf-16-be")
    characters = [int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2)]
    text = "".join(
        chr(unit) if 0x20 <= unit < 0x7F and chr(unit) != "\\" else f"\\u{unit:04x}" for unit in characters
    )
    # Java drops blanks in front of a value.
    return "\\" + text if text.startswith(" ") else text
