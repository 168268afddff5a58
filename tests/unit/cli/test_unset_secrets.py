"""Who is on call has not all passwords: a command wants those that it uses, and names the one that it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import run

SECRETS = """\
kafka:
  bootstrap_servers: 127.0.0.1:9
  options: {sasl.username: audit, sasl.password: "${KQUOTA_NO_KAFKA}"}
quotas:
  zookeeper_connect: 127.0.0.1:9
  zookeeper_login: {user: audit, password: "${KQUOTA_NO_ZOOKEEPER}"}
  callback_options: {token: "${KQUOTA_NO_TOKEN}"}
ship: {files: [1=broker.log], state_dir: "${KQUOTA_NO_FOLDER}", options: {sasl.password: "${KQUOTA_NO_SHIP}"}}
collect: {jmx: {brokers: {1: "http://127.0.0.1:9"}, user: monitor, password: "${file:gone}"}}
notifications: {routes: {ops: {kind: slack, url: "${KQUOTA_NO_SLACK}"}}}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    made = InMemoryCluster(tmp_path, monkeypatch, "approve")
    made.config.write_text(made.config.read_text(encoding="utf-8") + SECRETS, encoding="utf-8")
    return made


@pytest.mark.parametrize(
    "command",
    [
        "freeze --reason incident",
        "unfreeze",
        "violations",
        "usage",
        "decisions",
        "agreement",
        "findings",
        "timeline --user alice",
        "explain --user alice",
        "override list",
        "enforce plan",
        "exempt list",
        "enforce status",
        "doctor",
        "status",
    ],
)
def test_a_command_that_only_uses_the_tables_wants_no_login(cluster: InMemoryCluster, command: str) -> None:
    # At the time of the cluster its tables are fresh, so kquota status is content; the doctor misses the log.
    code, out, err = run(*command.split(), "--config", str(cluster.config))
    assert (code, err, "environment variable" in out) == (2 if command == "doctor" else 0, "", False)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "watch --once",
            "quotas.zookeeper_login.password: environment variable KQUOTA_NO_ZOOKEEPER is not set",
        ),
        (
            "describe",
            "quotas.zookeeper_login.password: environment variable KQUOTA_NO_ZOOKEEPER is not set",
        ),
        ("ship --once", "ship.state_dir: environment variable KQUOTA_NO_FOLDER is not set"),
        (
            "resolve --user a --callback-option a=b",
            "quotas.callback_options.token: environment variable KQUOTA_NO_TOKEN is not set",
        ),
        ("collect jmx", "collect.jmx.password: file gone cannot be read: No such file or directory"),
        ("notify --once", "notifications.routes.ops.url: environment variable KQUOTA_NO_SLACK is not set"),
    ],
)
def test_a_login_that_is_used_is_named(cluster: InMemoryCluster, command: str, problem: str) -> None:
    if command == "collect jmx":
        text = cluster.config.read_text(encoding="utf-8")
        cluster.config.write_text(
            text.replace("kafka:\n", "kafka:\n  jmx_topic: samples\n"), encoding="utf-8"
        )
    code, out, err = run(*command.split(), "--config", str(cluster.config))
    assert (code, out, err) == (1, "", f"kquota: {cluster.config}: {problem}\n")


def test_doctor_before_finds_all_that_is_not_set(cluster: InMemoryCluster) -> None:
    code, out, err = run("doctor", "--before", "--config", str(cluster.config), "--output", "csv")
    assert (code, err) == (2, "")
    found = [line.split(",") for line in out.splitlines()]
    unset = [
        line.removeprefix(f"{cluster.config}: ") for status, what, line, _ in found if what == "settings"
    ]
    assert unset == [
        f"{cluster.config} is valid",
        "kafka.options.sasl.password: environment variable KQUOTA_NO_KAFKA is not set",
        "quotas.zookeeper_login.password: environment variable KQUOTA_NO_ZOOKEEPER is not set",
        "quotas.callback_options.token: environment variable KQUOTA_NO_TOKEN is not set",
        "ship.state_dir: environment variable KQUOTA_NO_FOLDER is not set",
        "ship.options.sasl.password: environment variable KQUOTA_NO_SHIP is not set",
        "collect.jmx.password: file gone cannot be read: No such file or directory",
        "notifications.routes.ops.url: environment variable KQUOTA_NO_SLACK is not set",
    ]
    failed = [what for status, what, *_ in found if status == "fail"]
    assert failed == ["quota source", "Kafka"]


@pytest.mark.parametrize(
    "command",
    [
        "freeze --reason incident",
        "unfreeze",
        "violations",
        "usage",
        "decisions",
        "top --once",
        "agreement",
        "findings",
        "report",
        "timeline --user alice",
        "override list",
        "enforce plan",
        "lift --list",
        "enforce show",
        "maintain",
        "restate --from 2026-11-20 --to 2026-11-21",
        "enforce run --once",
        "watch --once",
        "exporter --once",
        "audit --once",
    ],
)
def test_a_wrong_place_of_the_tables_is_said_once(cluster: InMemoryCluster, command: str) -> None:
    cluster.config.write_text("cluster_id: demo\ntables: s3://bucket/x\n", encoding="utf-8")
    code, out, err = run(*command.split(), "--config", str(cluster.config))
    mistake = (
        "tables: scheme s3 is not supported, expected a path on this machine, or a URI of s3a, abfss, gs"
    )
    assert (code, out, err) == (1, "", f"kquota: {cluster.config}: {mistake}: write s3a://\n")


def test_a_wrong_place_of_the_tables_is_a_warning_where_the_command_names_another(
    cluster: InMemoryCluster,
) -> None:
    cluster.config.write_text("cluster_id: demo\ntables: s3://bucket/x\n", encoding="utf-8")
    tables = str(cluster.root / "tables")
    code, _, err = run("violations", "--config", str(cluster.config), "--tables", tables)
    assert (code, err.count("tables: scheme s3 is not supported"), err.count("\n")) == (0, 1, 1)
    assert err.startswith("kquota: warning: ")
