"""How the embedded servers log, as text: through log4j 1 up to Kafka 3.9, through log4j2 from 4.0 on.

The request logger is Kafka's own of `config/log4j.properties` and `config/log4j2.yaml`, at DEBUG. Its file does not
roll by the hour as theirs does: who reads it while the clock strikes would find it nearly empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.embedded.settings import BrokerSettings

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
_ONE_FILE = """\
log4j.appender.requestAppender=org.apache.log4j.FileAppender
"""
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
    """A configuration file and the option of Java that names it."""

    name: str
    text: str
    java_option: str


def plain_logging() -> LoggingFile:
    """What ZooKeeper has: everything on stdout."""
    return _log4j(_OUTPUT)


def request_logging(settings: BrokerSettings, class_path: Sequence[Path]) -> LoggingFile:
    """What a broker has, for the log4j that is on its class path."""
    if any(jar.name.startswith("log4j-core-2") for jar in class_path):
        name = "log4j2.yaml"
        return LoggingFile(name, _log4j2(settings), f"-Dlog4j2.configurationFile={name}")
    if settings.request_log_bytes is None:
        return _log4j(_OUTPUT + _REQUESTS + _ONE_FILE)
    by_size = _BY_SIZE.format(bytes=settings.request_log_bytes, files=settings.request_log_files)
    return _log4j(_OUTPUT + _REQUESTS + by_size)


def _log4j(text: str) -> LoggingFile:
    name = "log4j.properties"
    return LoggingFile(name, text, f"-Dlog4j.configuration=file:{name}")


def _log4j2(settings: BrokerSettings) -> str:
    if settings.request_log_bytes is None:
        return _YAML.format(kind="File", rolling="")
    return _YAML.format(
        kind="RollingFile",
        rolling=_YAML_BY_SIZE.format(bytes=settings.request_log_bytes, files=settings.request_log_files),
    )
