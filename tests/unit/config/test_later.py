"""A variable of the settings is wanted when its value is read: whoever does not need a login need not have it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.config.substitution import laters
from kquota_spark.errors import UserError

UNSET = """\
cluster_id: prod
tables: ${KQUOTA_NO_TABLES}
storage_options: {aws_secret_access_key: "${KQUOTA_NO_KEY}"}
kafka:
  bootstrap_servers: ${KQUOTA_NO_SERVERS}
  topic: lines
  options: {sasl.username: audit, sasl.password: "${KQUOTA_NO_PASSWORD}", ssl.key.password: "${KQUOTA_NO_KEY}"}
quotas:
  source: admin
  zookeeper_login: {user: audit, password: "${file:gone}"}
stream: {trigger: "${KQUOTA_NO_TRIGGER}"}
"""


def loaded(directory: Path, text: str) -> Settings:
    path = directory / "kquota.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def test_what_is_missing_is_named_to_who_reads_it_and_to_nobody_else(tmp_path: Path) -> None:
    settings = loaded(tmp_path, UNSET)
    path, unset = tmp_path / "kquota.yaml", "environment variable KQUOTA_NO_"
    assert (settings.cluster_id, settings.kafka.topic, settings.quotas.source) == ("prod", "lines", "admin")
    assert (settings.quotas.zookeeper_login.user, settings.kafka.has_log) == ("audit", True)
    for read, lines in (
        (lambda: settings.tables, [f"tables: {unset}TABLES is not set"]),
        (
            lambda: settings.storage_options,
            [f"storage_options.aws_secret_access_key: {unset}KEY is not set"],
        ),
        (lambda: settings.kafka.bootstrap_servers, [f"kafka.bootstrap_servers: {unset}SERVERS is not set"]),
        (
            lambda: settings.kafka.options,
            [
                f"kafka.options.sasl.password: {unset}PASSWORD is not set",
                f"kafka.options.ssl.key.password: {unset}KEY is not set",
            ],
        ),
        (
            lambda: settings.quotas.zookeeper_login.password,
            ["quotas.zookeeper_login.password: file gone cannot be read: No such file or directory"],
        ),
        (lambda: settings.stream.trigger, [f"stream.trigger: {unset}TRIGGER is not set"]),
    ):
        for _ in range(2):
            with pytest.raises(UserError) as refused:
                read()
            assert str(refused.value).splitlines() == [f"{path}: {line}" for line in lines]
    assert len(list(laters(settings))) == 6


def test_other_values_put_in_ask_for_none_of_the_rest(tmp_path: Path) -> None:
    settings = loaded(tmp_path, UNSET)
    kafka = settings.kafka.changed(bootstrap_servers="broker1:9092")
    settings = settings.changed(kafka=kafka, tables="t")
    assert (settings.tables, settings.kafka.bootstrap_servers, settings.kafka.topic) == (
        "t",
        "broker1:9092",
        "lines",
    )
    with pytest.raises(UserError, match=r"kafka\.options\.sasl\.password: environment variable"):
        settings.kafka.options  # noqa: B018


def test_tables_as_a_mapping_may_be_missing_too(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "tables: {location: '${KQUOTA_NO_TABLES}', requests: throttled}")
    assert settings.kept_requests == "throttled"
    with pytest.raises(UserError) as refused:
        settings.tables  # noqa: B018
    problem = "tables.location: environment variable KQUOTA_NO_TABLES is not set"
    assert str(refused.value) == f"{tmp_path}/kquota.yaml: {problem}"


def test_a_secret_is_read_once_and_not_before_it_is_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    secret.chmod(0o644)
    settings = loaded(tmp_path, f"ship: {{options: {{sasl.password: '${{file:{secret}}}'}}}}")
    assert capfd.readouterr() == ("", "")
    for _ in range(2):
        assert settings.ship.options == {"sasl.password": "s3cret"}
    assert capfd.readouterr() == ("", f"warning: {secret} can be read by every user: chmod o-r\n")


def test_a_secret_of_the_wrong_kind_is_refused_when_it_is_read_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQUOTA_TEST_SECRET", "s3cret")
    settings = loaded(tmp_path, "ship: {options: '${KQUOTA_TEST_SECRET}'}")
    with pytest.raises(UserError) as refused:
        settings.ship.options  # noqa: B018
    problem = "ship.options: a text, expected a mapping of names to texts"
    assert str(refused.value) == f"{tmp_path}/kquota.yaml: {problem}"


def test_workers_get_the_values_of_the_driver_and_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQUOTA_TEST_SECRET", "s3cret")
    text = UNSET + "ship: {options: {sasl.password: '${KQUOTA_TEST_SECRET}'}}\n"
    (tmp_path / "settings").write_bytes(pickle.dumps(loaded(tmp_path, text)))
    monkeypatch.delenv("KQUOTA_TEST_SECRET")
    program = """
import pickle, sys
settings = pickle.loads(pickle.dumps(pickle.load(open(sys.argv[1], "rb"))))
print(settings.ship.options, settings.kafka.topic)
try:
    settings.kafka.options
except Exception as error:
    print(str(error).splitlines()[0])
"""
    found = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "settings"], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == [
        "{'sasl.password': 's3cret'} lines",
        f"{tmp_path}/kquota.yaml: kafka.options.sasl.password: environment variable KQUOTA_NO_PASSWORD is not set",
    ]
