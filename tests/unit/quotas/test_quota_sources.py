"""Where quotas come from: the tables, the settings' own source, and servers that do not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import python_options, read_properties
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import RulePeriod
from kquota_spark.quotas.sources import from_settings, from_tables
from tests.support.programs.command_output import as_json, run, shown
from tests.support.tables.table_rows import T0_MS, decision, second, source, usage, write_table

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE: dict[str, Any] = {"cluster_id": "demo", "entity": "users/alice", "level": 3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """alice had 1 MB/s for a minute, then 2 MB/s; two clients of hers and one of bob's were seen."""
    root = tmp_path / "tables"
    write_table(
        root,
        "quota_rules",
        source(120),
        ALICE | {"valid_from": second(0), "valid_to": second(60), "producer_byte_rate": 1e6, "version": 7},
        ALICE | {"valid_from": second(60), "valid_to": None, "producer_byte_rate": 2e6, "version": 8},
    )
    write_table(
        root,
        "usage",
        usage(0, amount=5_000),
        usage(1, client_id="adhoc", amount=9_000),
        usage(2, user="bob", client_id="adhoc"),
        usage(-3_599, client_id="long-ago"),
    )
    return root


def test_the_table_of_rules_is_a_book(root: Path) -> None:
    found = from_tables(Settings(tables=str(root)))
    alice = Entity("alice")
    assert found.book.of(alice) == (
        RulePeriod(alice, {PRODUCE: 1e6}, T0_MS, T0_MS + 60_000, 7),
        RulePeriod(alice, {PRODUCE: 2e6}, T0_MS + 60_000, None, 8),
    )
    assert (list(found.book), found.cluster_id, found.has_history) == ([alice], "demo", True)
    assert found.known_through_ms == T0_MS + 120_000


def test_the_tables_tell_the_past_and_how_far_they_know_it(root: Path) -> None:
    asked = ("resolve", "--user", "alice", "--client-id", "c", "--type", "produce", "--tables", str(root))
    at = {s: as_json(*asked, "--at", str(T0_MS + 1_000 * s)) for s in (-1, 59, 60, 121)}
    assert [answer["rows"][0]["limit"] for answer in at.values()] == [None, 1e6, 2e6, 2e6]
    assert [answer["known_through"] for answer in at.values()] == ["2026-11-21T05:42:00Z"] * 4
    assert [answer["notes"] for answer in at.values()] == [
        [], [], [], ["edits after 2026-11-21 05:42:00 UTC are not known to this source"],
    ]  # fmt: skip


def test_who_was_seen_in_the_bucket(root: Path) -> None:
    asked = ("explain", "--user", "alice", "--client-id", "c", "--tables", str(root))
    # The table ends with the second T0 + 2, and the hour with it.
    assert (
        "seen     alice / adhoc, alice / etl (user / client id, most bytes first) in the hour to 2026-11-21\n"
        "         05:40:03 UTC\n"
    ) in shown(*asked)
    seen = as_json(*asked, "--at", str(T0_MS + 1_000))["seen"]
    assert seen == {
        "from": "2026-11-21T04:40:01Z", "to": "2026-11-21T05:40:01Z", "count": 2,
        "share_fetches": 0,
        "identities": [
            {"user": "alice", "client_id": "etl"}, {"user": "alice", "client_id": "long-ago"},
        ],
    }  # fmt: skip
    assert "seen     nobody in this bucket in the hour to 2026-11-21 05:40:03 UTC" in shown(
        *asked, "--type", "fetch"
    )
    # Of a request quota every request takes part; nothing limits, so the bucket is that of the client id.
    shared = ("explain", "--user", "x", "--client-id", "adhoc", "--type", "request", "--tables", str(root))
    assert as_json(*shared)["seen"]["identities"] == [
        {"user": "alice", "client_id": "adhoc"}, {"user": "bob", "client_id": "adhoc"},
    ]  # fmt: skip


def test_explain_shows_the_total_delay_of_the_bucket_in_the_last_hour(root: Path) -> None:
    asked = ("explain", "--user", "alice", "--client-id", "c", "--tables", str(root))
    assert as_json(*asked)["delay"] is None, "without decisions there is no line"
    assert "\ndelay " not in shown(*asked)
    alice = {"bucket_user": "alice", "bucket_client_id": ""}
    write_table(
        root,
        "decisions",
        decision(0, **alice, observed_total_throttle_ms=1_500, observed_throttled_requests=2),
        decision(1, **alice, broker_id=2, observed_total_throttle_ms=500, observed_throttled_requests=1),
        decision(2, bucket_user="bob", bucket_client_id="", observed_total_throttle_ms=9_000),
        decision(2, **alice, quota_type="fetch", observed_total_throttle_ms=9_000),
        # The hour of a table that ends with second 2 begins with second -3,597.
        decision(-3_598, **alice, observed_total_throttle_ms=9_000),
    )
    # 1,500 + 500 ms of both brokers, 2 + 1 requests.
    assert as_json(*asked)["delay"] == {
        "from": "2026-11-21T04:40:03Z", "to": "2026-11-21T05:40:03Z", "delay_ms": 2_000, "throttled_requests": 3,
    }  # fmt: skip
    line = "delay    2.00 s in total, 3 throttled requests in the hour to 2026-11-21 05:40:03 UTC\n"
    assert line in shown(*asked)
    # The hour before second 1: 9,000 + 1,500 ms.
    assert as_json(*asked, "--at", str(T0_MS + 1_000))["delay"]["delay_ms"] == 10_500
    none = "delay    no decision of this bucket in the hour to 2026-11-21 05:40:03 UTC\n"
    assert none in shown("explain", "--user", "carol", *asked[3:])


def test_a_client_id_with_a_rule_of_its_own_is_in_another_bucket(root: Path) -> None:
    pair = {"cluster_id": "demo", "entity": "users/alice/clients/adhoc", "level": 1, "valid_from": second(0)}
    write_table(root, "quota_rules", pair | {"producer_byte_rate": 5.0})
    asked = ("explain", "--user", "alice", "--tables", str(root), "--client-id")
    assert as_json(*asked, "c")["seen"]["identities"] == [{"user": "alice", "client_id": "etl"}]
    assert as_json(*asked, "adhoc")["seen"]["identities"] == [{"user": "alice", "client_id": "adhoc"}]


def test_at_most_ten_are_named(root: Path) -> None:
    write_table(root, "usage", *(usage(1, client_id=f"c{i:02}", amount=100 - i) for i in range(12)))
    answer = as_json("explain", "--user", "alice", "--client-id", "c", "--tables", str(root))
    assert answer["seen"]["count"] == 14
    # Those with most bytes: adhoc 9,000, etl 5,000, then 100, 99, ... bytes.
    assert [found["client_id"] for found in answer["seen"]["identities"]] == [
        "adhoc", "etl", "c00", "c01", "c02", "c03", "c04", "c05", "c06", "c07",
    ]  # fmt: skip


def test_of_several_clusters_the_settings_choose(root: Path) -> None:
    bob = {"cluster_id": "other", "entity": "users/bob", "level": 3, "valid_from": second(0)}
    write_table(root, "quota_rules", source(0) | {"cluster_id": "other"}, bob)
    for cluster_id, entity in (("demo", Entity("alice")), ("other", Entity("bob"))):
        assert list(from_tables(Settings(tables=str(root), cluster_id=cluster_id)).book) == [entity]
    with pytest.raises(UserError) as refused:
        from_tables(Settings(tables=str(root), cluster_id="kafka"))
    assert str(refused.value) == (
        f"table quota_rules under {root} has nothing of cluster kafka, only demo, other: set cluster_id (--config)"
    )


def test_the_settings_own_source(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("- {user: alice, type: producer_byte_rate, value: 5}\n", encoding="utf-8")
    by_file = Quotas(source="file", file=str(file))
    assert from_settings(Settings(tables=str(root), quotas=by_file)).cluster_id == "demo"
    without_tables = Settings(tables=str(tmp_path / "none"), quotas=by_file)
    assert from_settings(without_tables).origin == f"file {file}"
    with pytest.raises(UserError) as refused:
        from_settings(Settings(tables=str(tmp_path / "none"), quotas=Quotas(source="file")))
    assert str(refused.value).startswith("quotas.file: missing")


@pytest.mark.parametrize("command", ["explain", "resolve"])
@pytest.mark.parametrize("source", ["zookeeper", "admin"])
def test_no_cluster_is_guessed(
    command: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, and with settings that name no address, no server of this machine is asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(f"quotas: {{source: {source}}}\n", encoding="utf-8")
    which = (
        "kquota: which quotas: no table quota_rules under .kquota/tables, and no cluster is named: "
        "give --tables, --quotas, --zookeeper, --bootstrap-server or --context\n"
    )
    assert run(command, "--user", "bob") == (1, "", which)
    assert run(command, "--user", "bob", "--config", "mine.yaml") == (1, "", which)


def test_an_empty_table_says_what_to_do(tmp_path: Path) -> None:
    write_table(tmp_path, "quota_rules")
    code, out, err = run("resolve", "--tables", str(tmp_path))
    assert (code, out) == (1, "")
    assert err == (
        f"kquota: table quota_rules under {tmp_path} is empty: start the audit or kquota watch, or name another "
        "source\n"
    )


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_servers_that_do_not_answer_are_one_line_each(nobody: str, tmp_path: Path) -> None:
    config = tmp_path / "kquota.yaml"
    config.write_text(
        f"tables: {tmp_path}/none\nquotas: {{connect_timeout: 1 s, zookeeper_connect: '{nobody}'}}\n",
        encoding="utf-8",
    )
    asked = ("resolve", "--config", str(config))
    late = f"ZooKeeper {nobody} did not answer (connection refused): check"
    assert run(*asked) == (1, "", f"kquota: {late} quotas.zookeeper_connect and that the server runs\n")
    assert run(*asked, "--zookeeper", nobody) == (
        1, "", f"kquota: {late} --zookeeper and that the server runs\n",
    )  # fmt: skip
    refused = f"Kafka {nobody} did not answer (connection refused): check --bootstrap-server and that the server runs"
    assert run(*asked, "--bootstrap-server", nobody) == (1, "", f"kquota: {refused}\n")
    assert run(*asked, "--bootstrap-server", "host:port") == (
        1, "", "kquota: --bootstrap-server: 'host:port', expected host:port,host:port\n",
    )  # fmt: skip


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.mechanism:SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '    username="ali\\\\"ce" \\\n    password="s=e c;r\\u00e9t";\n'
        "ssl.endpoint.identification.algorithm=\nssl.truststore.type PEM\nssl.truststore.location=/ca.pem\n"
        "retries=5\n",
        encoding="utf-8",
    )
    properties = read_properties(path)
    assert properties["retries"] == "5"
    assert python_options(properties) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": 'ali"ce',
        "sasl_plain_password": "s=e c;rét",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }


def test_a_line_ends_where_java_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("a=1\\n\u2028\x85b=2\rc = 3\nd\\=e:\\ud83d\\ude00\n", encoding="utf-8")
    assert read_properties(path) == {"a": "1\n\u2028\x85b=2", "c": "3", "d=e": "\U0001f600"}


def test_an_escape_that_java_refuses_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=C:\\users", encoding="utf-8")
    with pytest.raises(UserError) as refused:
        read_properties(path)
    assert str(refused.value) == (
        f"{path}: Invalid \\u escape sequence: \\users, expected four hexadecimal digits after \\u"
    )


def test_librdkafkas_spelling_is_understood_too() -> None:
    assert python_options(
        {
            "security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "p",
            "ssl.ca.location": "ca", "ssl.certificate.location": "c", "ssl.key.location": "k",
            "ssl.key.password": "kp",
        }
    ) == {
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u",
        "sasl_plain_password": "p", "ssl_cafile": "ca", "ssl_certfile": "c", "ssl_keyfile": "k",
        "ssl_password": "kp",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "SASL"}, "security.protocol: 'SASL', expected one of PLAINTEXT, SSL, "),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism PLAIN needs a login: give sasl.username and "),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "CUSTOM"},
            "sasl.mechanism: 'CUSTOM', expected one of PLAIN, SCRAM-SHA-256, ",
        ),
        ({"ssl.truststore.location": "t.jks"}, "ssl.truststore.type: only Java reads JKS: export it as PEM"),
        (
            {"ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type: only Java reads PKCS12: export it as PEM",
        ),
    ],
)
def test_properties_that_cannot_be_followed(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        python_options(properties)
    assert str(refused.value).startswith(problem)


def test_a_missing_file_of_properties(tmp_path: Path) -> None:
    path = tmp_path / "none"
    code, out, err = run("resolve", "--bootstrap-server", "h:1", "--command-config", str(path))
    assert (code, out, err) == (1, "", f"kquota: {path}: cannot be read: No such file or directory\n")
