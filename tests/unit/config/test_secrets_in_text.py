"""No object that holds a secret shows it as text: not in a message, not in a traceback, not in a debugger's line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from kafka.errors import KafkaError

from kquota_spark.checkpoints.known import KnownLoader, LimitsLoader
from kquota_spark.config.loader import load_settings
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import (
    Collect,
    CollectJmx,
    Kafka,
    Quotas,
    Settings,
    Ship,
    ZooKeeperLogin,
    ZooKeeperTls,
)
from kquota_spark.embedded.servers import free_ports
from kquota_spark.errors import UserError
from kquota_spark.gateway.topic import Connection
from kquota_spark.kafka.broker_checks import asking
from kquota_spark.pipeline.ingest import IngestSettings
from kquota_spark.zookeeper.client import zookeeper_calls

SECRET = "s3cret-canary"
OPTIONS = {"sasl.password": SECRET, "ssl.key.password": SECRET, "sasl.jaas.config": SECRET}
SETTINGS = Settings(
    kafka=Kafka(options=OPTIONS),
    ship=Ship(options=OPTIONS),
    quotas=Quotas(
        zookeeper_login=ZooKeeperLogin(user="audit", password=SECRET),
        zookeeper_tls=ZooKeeperTls(key_password=SECRET),
        callback_options={"token": SECRET},
    ),
    collect=Collect(jmx=CollectJmx(password=SECRET, options=OPTIONS)),
    storage_options={"aws_secret_access_key": SECRET},
)


def test_settings_show_no_secret() -> None:
    parts = [SETTINGS, SETTINGS.kafka, SETTINGS.ship, SETTINGS.quotas, SETTINGS.collect.jmx]
    for part in parts:
        assert SECRET not in f"{part!r} {part}"


def secret_keys(kind: Any, path: str = "") -> Iterator[str]:
    """Where the settings hold secrets: each field that no `repr` shows, and one value of each mapping."""
    for field in fields(kind):
        wanted = get_type_hints(kind)[field.name]
        if is_dataclass(wanted):
            yield from secret_keys(wanted, f"{path}{field.name}.")
        elif not field.repr:
            yield f"{path}{field.name}" + (".x" if wanted is not str else "")


KEYS = sorted(secret_keys(Settings))


def test_there_are_twelve_places_for_secrets() -> None:
    assert KEYS == [
        "collect.jmx.options.x",
        "collect.jmx.password",
        "enforcement.options.x",
        "enforcement.zookeeper_login.password",
        "kafka.options.x",
        "quotas.callback_options.x",
        "quotas.zookeeper_login.password",
        "quotas.zookeeper_tls.key_password",
        "serve.proxy_secret",
        "serve.token",
        "ship.options.x",
        "storage_options.x",
    ]


NO_QUOTES = [
    ("!8042-canary", "line {line}: a value that begins with ! is a tag, expected it in quotes"),
    ("!!int 8042-canary", "line {line}: a value that begins with ! is a tag, expected it in quotes"),
    ("*8042-canary", "line {line}: aliases are not allowed"),
    ("8042-11-23", "{key}: a date, expected a text"),
    ("{8042-canary: 1}", "{key}: a mapping, expected a text"),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("secret", "problem"), NO_QUOTES)
def test_a_password_without_quotes_is_refused_and_not_shown(
    tmp_path: Path, key: str, secret: str, problem: str
) -> None:
    key = key.replace(".options.x", ".options.acks")  # one that a library knows
    parts = key.split(".")
    text = "\n".join("  " * depth + f"{part}:" for depth, part in enumerate(parts))
    path = tmp_path / "kquota.yaml"
    path.write_text(f"{text} {secret}\n", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {problem.format(line=len(parts), key=key)}"


@pytest.mark.parametrize("key", [key for key in KEYS if not key.endswith(".x")])
def test_a_password_of_digits_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    path = tmp_path / "kquota.yaml"
    for secret in ("80421234", "8042.1234"):
        text = "".join(f"{{{part}: " for part in key.split("."))
        path.write_text(text + secret + "}" * len(key.split(".")), encoding="utf-8")
        with pytest.raises(UserError) as refused:
            load_settings(path)
        assert str(refused.value) == f"{path}: {key}: a number, expected a text"


@pytest.mark.parametrize("key", [key.removesuffix(".x") for key in KEYS if key.endswith(".x")])
def test_a_text_in_place_of_options_is_not_shown(tmp_path: Path, key: str) -> None:
    path = tmp_path / "kquota.yaml"
    text = "".join(f"{{{part}: " for part in key.split("."))
    path.write_text(text + "sasl.password=8042-canary" + "}" * len(key.split(".")), encoding="utf-8")
    with pytest.raises(UserError) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {key}: a text, expected a mapping of names to texts"


def test_what_is_made_of_settings_shows_no_secret() -> None:
    made = [
        Connection("broker:9092", "decisions", OPTIONS),
        KnownLoader(SETTINGS),
        LimitsLoader(SETTINGS),
        IngestSettings("c", "UTC", 1, 1, 1),
    ]
    for one in made:
        assert SECRET not in f"{one!r} {one}"


def test_a_log_at_debug_shows_no_login(caplog: pytest.LogCaptureFixture) -> None:
    # Whoever embeds the package may have turned on all logs; nothing answers at this address.
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "audit"}
    kafka = Kafka(bootstrap_servers=address, options={**login, "sasl.password": SECRET})
    quotas = replace(SETTINGS.quotas, zookeeper_connect=address, connect_timeout=Duration(500))
    logging.getLogger("kafka").setLevel(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(KafkaError) as refused, asking(Settings(kafka=kafka)):
            pass
        with pytest.raises(UserError) as away, zookeeper_calls(quotas, session_timeout=Duration(2_000)):
            pass
    assert SECRET not in f"{caplog.text} {refused.value!r} {away.value!r}"
