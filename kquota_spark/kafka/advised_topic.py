"""The commands that prepare a cluster for the audit, as the pages show them: the log topic, and rights of users."""

from __future__ import annotations

import shlex

STAMP = "message.timestamp.type"
"""The setting of a topic that decides which clock stamps its messages: Kafka's or the producer's."""
PARTITIONS, _MOST_REPLICAS = 6, 3
TOPIC_CONFIG = {"retention.ms": "86400000", "cleanup.policy": "delete", STAMP: "LogAppendTime"}
"""Settings of the log topic: one day, deletion, and the brokers' clock."""


def replicas(brokers: int) -> int:
    """The replication factor of the log topic: 3, or fewer in a cluster of fewer brokers."""
    return max(1, min(_MOST_REPLICAS, brokers))


def topic_command(servers: str, topic: str, brokers: int = _MOST_REPLICAS) -> str:
    """The command that creates the log topic.

    Args:
        servers: `host:port,host:port`.
        topic: its name.
        brokers: how many the cluster has.
    """
    words = ["--create", "--topic", topic, "--partitions", str(PARTITIONS)]
    words += ["--replication-factor", str(replicas(brokers))]
    for name, value in TOPIC_CONFIG.items():
        words += ["--config", f"{name}={value}"]
    return shlex.join(["kafka-topics.sh", "--bootstrap-server", servers, *words])


def audit_grants(servers: str, user: str, topic: str) -> list[str]:
    """The commands that give a user the rights of the audit.

    Args:
        servers: `host:port,host:port`.
        user: name of the principal, without `User:`.
        topic: the log topic.
    """
    on_topic = ["--operation", "Read", "--operation", "DescribeConfigs", "--topic", topic]
    return [
        _grant(servers, user, on_topic),
        _grant(servers, user, ["--operation", "DescribeConfigs", "--cluster"]),
    ]


def shipper_grants(servers: str, user: str, topic: str) -> list[str]:
    """The commands that give a user the rights of the shipper; see `audit_grants`."""
    return [_grant(servers, user, ["--operation", "Write", "--topic", topic])]


def _grant(servers: str, user: str, rights: list[str]) -> str:
    to = ["--bootstrap-server", servers, "--add", "--allow-principal", f"User:{user}"]
    return shlex.join(["kafka-acls.sh", *to, *rights])
