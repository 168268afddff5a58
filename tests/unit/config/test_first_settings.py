"""The first settings file: it loads, holds what the brokers report, and never a secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kquota_spark.config.first_settings import first_settings
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.kafka.client_properties import secret_variables, settings_options
from kquota_spark.model.measure.broker_config import BrokerConfig

BROKER = BrokerConfig(
    1, "3.9", "api versions", "kraft", quota_window_num=20, quota_window_size_seconds=2,
    controller_quota_window_num=7, controller_quota_window_size_seconds=3,
)  # fmt: skip
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "kquota-audit",
    "sasl.password": "canary",
    "ssl.keystore.key": "canary-key",
    "ssl.key.location": "key.pem",
    "request.timeout.ms": "1",
}


def text(*brokers: BrokerConfig, **changed: str) -> str:
    places = {
        "cluster_id": "-Ab_9",
        "servers": "a:9092,b:9092",
        "tables": "/data/it's",
        "checkpoints": "/data/c",
    }
    return first_settings(
        **{**places, "topic": "log", **changed}, options=settings_options(LOGIN), brokers=brokers
    )


def loaded(tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("KQUOTA_SASL_PASSWORD", "KQUOTA_SSL_KEYSTORE_KEY"):
        monkeypatch.setenv(name, f"value of {name}")
    (tmp_path / "kquota.yaml").write_text(content, encoding="utf-8")
    return load_settings(tmp_path / "kquota.yaml")


def test_the_file_loads_as_what_the_brokers_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(tmp_path, text(BROKER, replace(BROKER, broker_id=2)), monkeypatch)
    assert (settings.cluster_id, settings.tables, settings.checkpoints) == ("-Ab_9", "/data/it's", "/data/c")
    assert (settings.kafka.bootstrap_servers, settings.kafka.topic) == ("a:9092,b:9092", "log")
    broker = settings.broker
    assert settings.quotas.source == "admin"
    assert (broker.quota_window_num, broker.quota_window_size_seconds) == (20, 2)
    assert (broker.controller_quota_window_num, broker.controller_quota_window_size_seconds) == (7, 3)
    assert "version" not in broker.given
    wanted = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "kquota-audit",
        "sasl.password": "value of KQUOTA_SASL_PASSWORD",
        "ssl.keystore.key": "value of KQUOTA_SSL_KEYSTORE_KEY",
        "ssl.key.location": "key.pem",
    }
    assert settings.kafka.options == wanted
    assert settings.ship.options == wanted


def test_no_secret_is_in_the_file_and_its_variables_are_named() -> None:
    assert "canary" not in text(BROKER)
    assert secret_variables(LOGIN) == ["KQUOTA_SASL_PASSWORD", "KQUOTA_SSL_KEYSTORE_KEY"]


@pytest.mark.parametrize(
    ("brokers", "why"),
    [
        ((BROKER, replace(BROKER, broker_id=2, quota_window_num=5)), "the brokers differ: each is asked"),
        ((replace(BROKER, quota_window_num=None),), "not readable: grant DescribeConfigs"),
    ],
)
def test_windows_that_differ_or_are_not_readable_stay_empty(
    brokers: tuple[BrokerConfig, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = text(*brokers)
    [line] = [line for line in content.splitlines() if line.startswith("  quota_window_num:")]
    assert line.split(":", 1)[1].strip() == f"# {why}"
    settings = loaded(tmp_path, content, monkeypatch)
    assert "quota_window_num" not in settings.broker.given and settings.broker.quota_window_size_seconds == 2


def test_a_callback_of_the_brokers_stays_in_its_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = replace(BROKER, quota_callback_class="a.B\ntables: evil")
    settings = loaded(tmp_path, text(named), monkeypatch)
    assert (settings.quotas.callback, settings.tables) == ("", "/data/it's")
