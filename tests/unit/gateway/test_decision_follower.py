"""A followed gate says at once what is wrong with its settings; that Kafka is away it says and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.settings import Enforcement, Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.gateway.follower import FollowedGate
from kquota_spark.gateway.gate import GateState, QuotaGate
from kquota_spark.gateway.topic import Connection
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.combining import NOT_THROTTLED
from kquota_spark.model.simulation.quota_manager import Request
from kquota_spark.process.processes import wait_for

NOBODY = "127.0.0.1:1"


def test_without_kafka_the_data_path_goes_on_by_the_fallback() -> None:
    with FollowedGate(QuotaGate("pay"), Connection(NOBODY, "kquota.decisions")) as gate:
        assert gate.check(Request(Api.PRODUCE, "alice", "app", 1, 9, 10**9)) == NOT_THROTTLED
        assert gate.state is GateState.FALLBACK
        assert wait_for(lambda: bool(gate.last_error), within_s=60)
        assert gate.last_error.startswith(f"topic kquota.decisions on {NOBODY} cannot be read: ")
        assert gate.expired() == []


def test_options_that_are_none_are_an_error_at_the_start(tmp_path: Path) -> None:
    options = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "missing.pem")}
    connection = Connection(NOBODY, "kquota.decisions", options)
    with (
        pytest.raises(UserError, match=r"kafka\.options: .*ssl\.ca\.location"),
        FollowedGate(QuotaGate("pay"), connection),
    ):
        pass


def test_settings_without_a_topic_say_so() -> None:
    with pytest.raises(UserError, match=r"enforcement\.decision_topic: not set"):
        FollowedGate.of(Settings())


def test_the_windows_are_those_of_the_brokers_in_the_settings() -> None:
    settings = Settings(
        kafka=Kafka(bootstrap_servers=NOBODY), enforcement=Enforcement(decision_topic="kquota.decisions")
    )
    gate = FollowedGate.of(settings)._gate
    assert (gate.cluster_id, gate.silence_ms, gate.config.name) == ("kafka", 30_000, "3.8+/11x1000ms")
