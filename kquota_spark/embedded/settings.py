"""The configuration files of the embedded servers, as text.

Every path in them is relative to the server's own directory, which is its working directory. So a comma or a blank in
a path cannot break a property.

Servers log through log4j 1 up to Kafka 3.9, and through log4j2 from 4.0 on. The request logger is that of Kafka's
`config/log4j.properties` and `config/log4j2.yaml`, at DEBUG. Unlike Kafka's, its file does not roll every hour: after
a roll a reader would find it nearly empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kquota_spark.kafka.client_properties import quoted

# User of the brokers' own logins, if there are users.
BROKER_USER = "kquota-broker"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of the brokers that a test or the demo may choose.

    Attributes:
        users: passwords by name; with users clients log in by SASL/PLAIN, without them everyone is ANONYMOUS.
        request_log_bytes: size at which the request log rolls; None keeps it in one file.
        request_log_files: number of rolled files to keep; only with `request_log_bytes`.
        properties: further entries of server.properties; they override those set here.
        class_path: jars before Kafka's own, e.g. with a class that a property names.
        jolokia: whether brokers serve JMX by HTTP, through Jolokia's agent on a separate port.
        kraft: one node that is broker and controller, instead of ZooKeeper and brokers.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_log_bytes: int | None = None
    request_log_files: int = 10
    properties: Mapping[str, str] = field(default_factory=dict)
    class_path: Sequence[Path] = ()
    jolokia: bool = False
    kraft: bool = False


def zookeeper_properties(port: int) -> str:
    """The text of zoo.cfg."""
    return java_properties(
        {
            "dataDir": "data",
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            # Short ticks allow a test to use a session that expires within a second.
            "tickTime": "500",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            # Its web console would take port 8080.
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,stat,mntr",
        }
    )


_INTERNAL_TOPICS = {
    f"{topic}.{name}": "1"
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    for name in ("num.partitions", "replication.factor", "min.isr")
    if (topic, name) != ("offsets.topic", "min.isr")
}


def broker_properties(
    broker_id: int, port: int, other_port: int, settings: BrokerSettings, broker_password: str
) -> str:
    """The text of server.properties.

    Args:
        broker_id: unique within the cluster.
        port: port of the client listener.
        other_port: port of ZooKeeper, or with KRaft of the node's controller listener.
        settings: settings of the broker.
        broker_password: password of the brokers' own user; unused without users.
    """
    protocol = "SASL_PLAINTEXT" if settings.users else "PLAINTEXT"
    listeners = [f"{protocol}://127.0.0.1:{port}"]
    if settings.kraft:
        listeners.append(f"CONTROLLER://127.0.0.1:{other_port}")
    properties = {
        "listeners": ",".join(listeners),
        "security.inter.broker.protocol": protocol,
        "log.dirs": "data",
        "log.cleaner.enable": "false",
        "log.index.size.max.bytes": "1048576",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # Test data may have message times far in the past, which must not expire.
        "log.retention.ms": "-1",
        # The audit requires this for its topics.
        "log.message.timestamp.type": "LogAppendTime",
        **_INTERNAL_TOPICS,
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # Brokers that stop together cannot hand over their partitions: more than one try would take 15 s.
        "controlled.shutdown.max.retries": "1",
        "controlled.shutdown.retry.backoff.ms": "200",
    }
    properties |= (_with_kraft if settings.kraft else _with_zookeeper)(broker_id, other_port)
    if settings.users:
        properties |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_line(settings.users, broker_password),
        }
    return java_properties({**properties, **settings.properties})


def _with_zookeeper(broker_id: int, port: int) -> dict[str, str]:
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": f"127.0.0.1:{port}",
        # A killed broker stays registered until its session ends, and can start again only then.
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "60000",
    }


def _with_kraft(broker_id: int, port: int) -> dict[str, str]:
    return {
        "node.id": str(broker_id),
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"{broker_id}@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        # A killed node can register again only when its session has ended.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def jaas_line(users: Mapping[str, str], broker_password: str) -> str:
    """The JAAS line of SASL/PLAIN with all users; names and passwords may contain any character."""
    options = {"username": BROKER_USER, "password": broker_password, f"user_{BROKER_USER}": broker_password}
    options |= {f"user_{name}": password for name, password in users.items()}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return " ".join([module, *(f"{quoted(key)}={quoted(value)}" for key, value in options.items())]) + ";"


def java_properties(properties: Mapping[str, str]) -> str:
    """The text of a properties file; Java reads it as Latin-1, so non-ASCII characters in values are escaped."""
    import javaproperties

    return javaproperties.dumps(properties, timestamp=False)


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
_ONE_FILE = "log4j.appender.requestAppender=org.apache.log4j.FileAppender\n"
_BY_SIZE = """\
log4j.appender.requestAppender=org.apache.log4j.RollingFileAppender
log4j.appender.requestAppender.MaxFileSize={bytes}
log4j.appender.requestAppender.MaxBackupIndex={files}
"""
_YAML = """\
Configuration:
  Appenders:
    Console:
      name: stdout
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
    {kind}:
      name: requestAppender
      fileName: kafka-request.log
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
{rolling}\
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: stdout}}}}
    Logger:
      name: kafka.request.logger
      level: DEBUG
      additivity: false
      AppenderRef: {{ref: requestAppender}}
"""
_YAML_BY_SIZE = """\
      filePattern: "kafka-request.log.%i"
      SizeBasedTriggeringPolicy: {{size: {bytes}}}
      # As log4j 1 does it: .1 is the youngest of the rolled ones.
      DefaultRolloverStrategy: {{max: {files}, fileIndex: min}}
"""


@dataclass(frozen=True, slots=True)
class LoggingFile:
    """A logging configuration, and the Java option that names its file."""

    name: str
    text: str
    java_option: str


def plain_logging() -> LoggingFile:
    """The logging configuration of ZooKeeper: everything to stdout."""
    return _log4j(_OUTPUT)


def request_logging(settings: BrokerSettings, class_path: Sequence[Path]) -> LoggingFile:
    """The logging configuration of a broker, for the version of log4j on its class path."""
    is_rolled = settings.request_log_bytes is not None
    sizes = {"bytes": settings.request_log_bytes, "files": settings.request_log_files}
    if any(jar.name.startswith("log4j-core-2") for jar in class_path):
        kind, rolling = ("RollingFile", _YAML_BY_SIZE.format(**sizes)) if is_rolled else ("File", "")
        text = _YAML.format(kind=kind, rolling=rolling)
        return LoggingFile("log4j2.yaml", text, "-Dlog4j2.configurationFile=log4j2.yaml")
    return _log4j(_OUTPUT + _REQUESTS + (_BY_SIZE.format(**sizes) if is_rolled else _ONE_FILE))


def _log4j(text: str) -> LoggingFile:
    return LoggingFile("log4j.properties", text, "-Dlog4j.configuration=file:log4j.properties")
