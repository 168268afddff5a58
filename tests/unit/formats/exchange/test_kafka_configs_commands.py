"""The script of kafka-configs commands runs as it is meant, whatever the names, and is never read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kquota_spark.formats.exchange.kafka_configs import refuse_commands as read
from kquota_spark.formats.exchange.kafka_configs import write_commands as write
from kquota_spark.model.quotas.entities import DEFAULT, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey

PRODUCE, FETCH, REQUEST, _ = QuotaKey
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE


def test_commands_are_quoted_for_a_shell_and_name_every_part() -> None:
    quotas: QuotaSet = {
        Entity("o'neil $(x)\n", DEFAULT): {PRODUCE: 1e7, REQUEST: 12.5},
        Entity(client_id="--force"): {FETCH: 1.0},
        IpEntity("10.0.0.1"): {CONNECTIONS: 5.0},
    }
    text = write(quotas)
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    ran = text.replace("kafka-configs.sh", "printf '%s|' ")
    words = subprocess.run(
        ["sh"], input=ran, text=True, check=True, capture_output=True, env={"BOOTSTRAP_SERVER": "b:9092"}
    ).stdout.split("|")
    head = ["--bootstrap-server", "b:9092", "--alter"]
    assert words == [
        *head, "--entity-type", "users", "--entity-name", "o'neil $(x)\n",
        "--entity-type", "clients", "--entity-default",
        "--add-config", "producer_byte_rate=10000000,request_percentage=12.5",
        *head, "--entity-type", "clients", "--entity-name", "--force", "--add-config", "consumer_byte_rate=1",
        *head, "--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config", "connection_creation_rate=5", "",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="NUL"):
        write({Entity("a\0"): {PRODUCE: 1.0}})
    with pytest.raises(ValueError, match="only written"):
        read(text)


def test_a_command_that_fails_does_not_stop_the_others_and_is_not_lost(tmp_path: Path) -> None:
    tool = tmp_path / "kafka-configs.sh"
    tool.write_text('#!/bin/sh\necho "$7"\n[ "$7" != alice ]\n')
    tool.chmod(0o755)
    environment = {"BOOTSTRAP_SERVER": "b:9092", "PATH": f"{tmp_path}:{os.environ['PATH']}", "failed": "9"}

    def ran(*users: str) -> tuple[int, list[str]]:
        text = write({Entity(user): {PRODUCE: 1.0} for user in users})
        ended = subprocess.run(
            ["sh"], input=text, text=True, check=False, capture_output=True, env=environment
        )
        return ended.returncode, ended.stdout.split()

    assert ran("alice", "bob") == (1, ["alice", "bob"])
    assert ran("bob") == (0, ["bob"])
    assert ran() == (0, [])
