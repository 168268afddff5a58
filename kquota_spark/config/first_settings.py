"""The text of a first settings file, from what the brokers of a cluster report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kquota_spark.model.measure.broker_config import BrokerConfig

_COMMENTS_AT = 46
_WINDOWS = ("quota_window_num", "quota_window_size_seconds")
_WRITTEN = (
    ("quota_window_num", "quota.window.num, as the brokers report it"),
    ("quota_window_size_seconds", "quota.window.size.seconds"),
    ("controller_quota_window_num", "controller.quota.window.num"),
    ("controller_quota_window_size_seconds", "controller.quota.window.size.seconds"),
    ("quota_producer_default", "quota.producer.default"),
    ("quota_consumer_default", "quota.consumer.default"),
)
"""Keys of `broker`, with their comments."""


def first_settings(
    *,
    cluster_id: str,
    servers: str,
    tables: str,
    checkpoints: str,
    topic: str,
    options: Mapping[str, str],
    brokers: Sequence[BrokerConfig],
) -> str:
    """The YAML text of the settings for one cluster.

    Args:
        cluster_id: Kafka's own id of the cluster.
        servers: `host:port,host:port`.
        tables: root of the tables.
        checkpoints: root of the checkpoints.
        topic: the topic of the request log.
        options: login of the clients, see `client_properties.settings_options`.
        brokers: what each broker reports.
    """
    lines = [
        "# Settings of one cluster, written by kquota init. Other keys keep their defaults:",
        "# conf/kquota.yaml of the package shows them all.",
        "",
        _line("cluster_id", cluster_id, "Kafka's id. Any name will do: choose it before the first run"),
        _line("tables", tables, "root of the tables: a path or URI"),
        _line("checkpoints", checkpoints, "root of the streaming checkpoints: keep both together"),
        "",
        "kafka:",
        _line("  bootstrap_servers", servers, "brokers of the log topic, and of the quotas"),
        _line("  topic", topic, "the topic of the request log"),
        *_options(options),
        "",
        "quotas:",
        _line("  source", "admin", "the brokers are asked for their quotas: KRaft and ZooKeeper"),
        *_callback(brokers),
        "",
        "broker:",
        *_of_brokers(brokers),
        _line("  log_time_zone", "UTC", "the time zone of the brokers' log: check it"),
    ]
    if options:
        lines += [
            "",
            "ship:" + " # the shipper's login; one of its own needs less rights",
            *_options(options),
        ]
    return "\n".join([*lines, ""])


def _options(options: Mapping[str, str]) -> list[str]:
    return (
        ["  options:", *(f"    {name}: {json.dumps(value)}" for name, value in options.items())]
        if options
        else []
    )


def _callback(brokers: Sequence[BrokerConfig]) -> list[str]:
    named = next((broker.quota_callback_class for broker in brokers if broker.quota_callback_class), None)
    if named is None:
        return []
    return [_line("  callback", "", f"name the rule of {json.dumps(named)} in Python: kquota help quotas")]


def _of_brokers(brokers: Sequence[BrokerConfig]) -> list[str]:
    versions = ", ".join(f"{broker.broker_id}: {broker.version}" for broker in brokers)
    lines = [
        f"  # version is not set: each broker is asked, and an upgrade is noticed. Now, by broker id: {versions}"
    ]
    for name, about in _WRITTEN:
        values = {getattr(broker, name) for broker in brokers}
        value = values.pop()
        if not values and value is not None:
            lines.append(_line(f"  {name}", value, about))
        elif name in _WINDOWS:
            why = "the brokers differ: each is asked" if values else "not readable: grant DescribeConfigs"
            lines.append(_line(f"  {name}", None, why))
    return lines


def _line(key: str, value: str | int | None, comment: str) -> str:
    shown = "" if value is None else f" {json.dumps(value)}"
    return f"{key}:{shown}".ljust(_COMMENTS_AT) + f" # {comment}"
