"""The checks of Kafka for `kquota doctor --before`: brokers, their settings, and the log topic.

They use kafka-python, because librdkafka cannot describe broker loggers (BROKER_LOGGER). Nothing is created or
changed. A topic is searched in the list of topics: a query by its name could create it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from kquota_spark.config.settings import Broker, Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.advised_topic import STAMP
from kquota_spark.kafka.client_properties import python_names
from kquota_spark.kafka.clients import connection, overheard, python_admin, python_errors, refused_login
from kquota_spark.kafka.log_messages import Place
from kquota_spark.kafka.log_topic_checks import Consumed, arrival_checks
from kquota_spark.kafka.questions import missing_jmx_topic, missing_topics, stamp_command
from kquota_spark.model.measure.sampled_rate import RingVariant
from kquota_spark.process.check import Check, fail, failed, ok, warn

TIMEOUT_MS = 5_000
_LEAST_RETENTION_MS = 3_600_000
_LAG_FACTOR = 4
_CALLBACK = "client.quota.callback.class"
_QUOTA_KEYS = ("quota.window.num", "quota.window.size.seconds", _CALLBACK)
_TOPIC_KEYS = ("retention.ms", "retention.bytes", "cleanup.policy", STAMP)


def kafka_checks(settings: Settings, consumed: Mapping[Place, Consumed] | None, now_ms: int) -> list[Check]:
    """All checks of Kafka; a single failed one if it does not answer.

    `consumed` is how far the tables hold the log topics, by partition; None before the first run.
    """
    try:
        with answer_errors():
            return _answered_checks(settings, consumed, now_ms)
    except NoAnswerError as error:
        servers = settings.kafka.bootstrap_servers
        advice = "check kafka.bootstrap_servers and kafka.options, and that the broker runs"
        return [fail("Kafka", f"{servers} does not answer as expected ({error})", advice)]
    except UserError as error:
        return [failed("Kafka", error)]


class NoAnswerError(UnreachableError):
    """Brokers do not answer as expected."""


def answer_errors() -> AbstractContextManager[None]:
    """Turn the errors that kafka-python raises when brokers do not answer as expected into `NoAnswerError`.

    Its message is only the name of the error: a message of the client might quote its configuration.
    """
    return python_errors(lambda error: NoAnswerError(type(error).__name__), ValueError, AssertionError)


def _answered_checks(
    settings: Settings, consumed: Mapping[Place, Consumed] | None, now_ms: int
) -> list[Check]:
    servers = settings.kafka.bootstrap_servers
    with asking(settings) as admin:
        brokers = sorted(int(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"])
        checks = [ok("Kafka", f"{servers} answers, brokers {', '.join(map(str, brokers))}")]
        checks += [_version(admin, broker_id, settings.broker) for broker_id in brokers]
        for broker_id in brokers:
            checks += _quota_settings(admin, broker_id, settings)
        existing = admin.list_topics()
        if settings.kafka.jmx_topic:
            missing = missing_jmx_topic(settings, existing, len(brokers))
            there = ok("JMX topic", f"{settings.kafka.jmx_topic} is there")
            checks.append(fail("JMX topic", *missing) if missing else there)
        if not settings.kafka.has_log:
            return checks
        checks += [_request_logger(admin, broker_id) for broker_id in brokers]
        missing = missing_topics(settings, existing, len(brokers))
        if missing is not None:
            return [*checks, fail("log topic", *missing)]
        topics = settings.kafka.log_topics(existing)
        for topic in topics:
            found = _described(admin, "TOPIC", topic, _TOPIC_KEYS)
            checks.append(_retention(topic, found, consumed, now_ms))
            if found.get("retention.ms") is not None:
                is_allowed = settings.kafka.allow_create_time
                checks.append(stamp_check(topic, found.get(STAMP), is_allowed=is_allowed))
    to_kafka = connection(servers, settings.kafka.options)
    return checks + arrival_checks(settings, topics, to_kafka, brokers, consumed)


@contextmanager
def asking(settings: Settings, login: str = "kafka.options") -> Iterator[Any]:
    """kafka-python's admin client, open within the block; it raises its own errors.

    Args:
        settings: address and login.
        login: name of the setting or option that gave the login, for errors.

    Raises:
        UserError: the brokers refuse the login, or there is no token for it.
    """
    from kafka.errors import SaslAuthenticationFailedError

    kafka = settings.kafka
    try:
        # The client logs each attempt; our error reports it once.
        with overheard(SaslAuthenticationFailedError):
            client = python_admin(
                kafka.bootstrap_servers,
                kafka.options,
                client_id=kafka.client_id,
                bootstrap_timeout_ms=TIMEOUT_MS,
                request_timeout_ms=TIMEOUT_MS,
                **python_names(kafka.options),
            )
            with closing(client):
                yield client
    except SaslAuthenticationFailedError as error:
        raise refused_login(kafka.bootstrap_servers, kafka.options, login) from error


def _version(admin: Any, broker_id: int, expected: Broker) -> Check:
    # A broker does not report its version. The calls that it offers give it, exact to the minor release.
    found = ".".join(map(str, admin.get_broker_version_data(broker_id).broker_version))
    if "version" not in expected.given:
        return ok("broker version", f"broker {broker_id} speaks like {found}")
    evidence = f"broker {broker_id} speaks like {found}, settings say {expected.version}"
    if RingVariant.of_version(found) is not RingVariant.of_version(expected.version):
        advice = "set broker.version: 3.8 changed how samples are kept, verdicts would be wrong"
        return fail("broker version", evidence, advice)
    return ok("broker version", evidence)


def _quota_settings(admin: Any, broker_id: int, settings: Settings) -> list[Check]:
    expected = settings.broker
    found = _described(admin, "BROKER", str(broker_id), _QUOTA_KEYS)
    what = "quota window"
    if not found:
        advice = "grant DescribeConfigs on the cluster to the user of kafka.options, or compare quota.window.* by hand"
        return [warn(what, f"broker {broker_id}: its settings cannot be read", advice)]
    window, size_s = found.get("quota.window.num"), found.get("quota.window.size.seconds")
    evidence = f"broker {broker_id}: {window} windows of {size_s} s"
    checks = callback_checks(broker_id, found.get(_CALLBACK) or "", settings.quotas.callback)
    wanted = (
        str(expected.quota_window_num) if "quota_window_num" in expected.given else window,
        str(expected.quota_window_size_seconds) if "quota_window_size_seconds" in expected.given else size_s,
    )
    if (window, size_s) != wanted:
        advice = "set broker.quota_window_num and quota_window_size_seconds to these"
        return [fail(what, evidence, advice), *checks]
    return [ok(what, evidence), *checks]


def callback_checks(broker_id: int, of_broker: str, of_settings: str) -> list[Check]:
    """Check that a broker and the settings agree on a quota callback; no check where neither has one."""
    what, evidence = "quota callback", f"broker {broker_id}: {_CALLBACK} = {of_broker or 'not set'}"
    if of_broker and not of_settings:
        advice = "name the same rule in Python in quotas.callback: until then decisions are not the broker's"
        return [fail(what, evidence, advice)]
    if of_settings and not of_broker:
        return [fail(what, evidence, f"the settings name {of_settings}: remove quotas.callback")]
    return [ok(what, f"{evidence}, audited by {of_settings}")] if of_broker else []


def _request_logger(admin: Any, broker_id: int) -> Check:
    loggers = _described(admin, "BROKER_LOGGER", str(broker_id), None)
    level = loggers.get("kafka.request.logger") or loggers.get("root")
    command = f"kafka-configs.sh --describe --entity-type broker-loggers --entity-name {broker_id}"
    if level is None:
        evidence = f"broker {broker_id}: its loggers cannot be read"
        return warn("request log", evidence, f"look with {command}: kafka.request.logger must be DEBUG")
    if level in ("DEBUG", "TRACE", "ALL"):
        return ok("request log", f"broker {broker_id}: kafka.request.logger is {level}")
    advice = (
        "without it there is nothing to audit: kafka-configs.sh --alter --entity-type broker-loggers "
        f"--entity-name {broker_id} --add-config kafka.request.logger=DEBUG, and in log4j.properties for good"
    )
    return fail("request log", f"broker {broker_id}: kafka.request.logger is {level}, expected DEBUG", advice)


def stamp_check(topic: str, stamp: str | None, *, is_allowed: bool) -> Check:
    """Check which clock stamps the messages of a log topic: Kafka's, or those of the hosts that write them.

    Stamps of hosts are a failure, or a warning if `is_allowed`: the job then reads the topic anyway.
    """
    what, evidence = "log topic clock", f"{topic}: {STAMP} is {stamp}"
    if stamp == "LogAppendTime":
        return ok(what, evidence)
    advice = f"a host whose clock is wrong stamps lines and messages alike: {stamp_command(topic)}"
    return (warn if is_allowed else fail)(what, evidence, advice)


def _retention(
    topic: str, found: Mapping[str, str | None], consumed: Mapping[Place, Consumed] | None, now_ms: int
) -> Check:
    what = "log topic"
    retention, size, policy, _ = map(found.get, _TOPIC_KEYS)
    if retention is None:
        evidence = f"{topic} is there, its settings cannot be read"
        return warn(what, evidence, "grant DescribeConfigs on it to the user of kafka.options")
    evidence = f"{topic} keeps lines for {_hours(int(retention))}"
    if policy != "delete":
        evidence = f"{topic}: cleanup.policy is {policy}"
        return fail(what, evidence, "set it to delete: compaction removes lines")
    needed_ms = _LEAST_RETENTION_MS
    read_ms = [read.last_timestamp_ms for place, read in (consumed or {}).items() if place[0] == topic]
    if read_ms:
        lag_ms = max(now_ms - min(read_ms), 0)
        needed_ms = max(needed_ms, _LAG_FACTOR * lag_ms)
        evidence += f", ingest is {lag_ms // 1_000:,} s behind"
    if 0 <= int(retention) < needed_ms:
        advice = f"raise retention.ms to {_hours(needed_ms)} or more: unread lines expire"
        return warn(what, evidence, advice)
    if size not in (None, "-1"):
        advice = "retention.bytes is how long? Set it to -1, or watch the check offsets of kquota doctor"
        return warn(what, f"{evidence}, but not more than {int(size):,} bytes a partition", advice)
    return ok(what, evidence)


def _hours(time_ms: int) -> str:
    return "ever" if time_ms < 0 else f"{time_ms / 3_600_000:,.1f} h"


def _described(admin: Any, kind: str, name: str, keys: Sequence[str] | None) -> dict[str, str | None]:
    return {key: entry["value"] for key, entry in entries(admin, kind, name, keys).items()}


def entries(admin: Any, kind: str, name: str, keys: Sequence[str] | None) -> dict[str, dict[str, str | None]]:
    """The settings of a broker, its loggers or a topic, as Kafka describes them; empty without the right to read them.

    Args:
        admin: a `KafkaAdminClient`.
        kind: `BROKER`, `BROKER_LOGGER` or `TOPIC`.
        name: broker id as text, or topic.
        keys: names of settings; None for all.
    """
    from kafka.admin import ConfigResource, ConfigResourceType

    resource = ConfigResource(ConfigResourceType[kind], name, None if keys is None else list(keys))
    found: dict[str, dict[str, str | None]] = (
        admin.describe_configs([resource], config_filter="all").get(kind.lower(), {}).get(name, {})
    )
    return found
