"""The same quotas by ZooKeeper, by the Admin API, from a file and from the tables: one answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.readiness import connected
from kquota_spark.embedded.settings import java_properties
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.model.quotas.rules import END_MS, RuleBook
from kquota_spark.process.processes import wait_for
from kquota_spark.quotas.sources import (
    Client,
    QuotaHistory,
    from_admin,
    from_file,
    from_tables,
    from_zookeeper,
)
from kquota_spark.quotas.watch import Watcher
from tests.support.clusters.quota_nodes import until_in_force
from tests.support.clusters.waiting import WITHIN_S
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.places import ROOT

pytestmark = pytest.mark.alone  # seconds count: of an answer, and of a login until it is refused

DN = "CN=a b,OU=*+ü/%"
CLIENT = "dash board; <x>"
CLIENTS = "import kafka, kazoo.client"
QUOTAS = f"""\
- {{user: alice, client_id: etl, type: producer_byte_rate, value: 300000}}
- {{user: alice, client_id: <default>, type: producer_byte_rate, value: 200000}}
- {{user: alice, type: consumer_byte_rate, value: 100000}}
- {{user: "{DN}", type: request_percentage, value: 25.5}}
- {{user: <default>, client_id: "{CLIENT}", type: producer_byte_rate, value: 5}}
- {{user: <default>, client_id: <default>, type: controller_mutation_rate, value: 2.5}}
- {{user: <default>, type: consumer_byte_rate, value: 1000000}}
- {{client_id: "{CLIENT}", type: consumer_byte_rate, value: 7}}
- {{client_id: <default>, type: consumer_byte_rate, value: 8}}
"""


@pytest.fixture(scope="module")
def cluster(sasl_cluster: Cluster) -> Cluster:
    """One broker with a login, and a quota on each level."""
    zookeeper = sasl_cluster.zookeeper_connect
    set_quota(zookeeper, user="alice", client_id="etl", producer_byte_rate=300_000)
    set_quota(zookeeper, user="alice", client_id=DEFAULT, producer_byte_rate=200_000)
    set_quota(zookeeper, user="alice", consumer_byte_rate=100_000)
    set_quota(zookeeper, user=DN, request_percentage=25.5)
    set_quota(zookeeper, user=DEFAULT, client_id=CLIENT, producer_byte_rate=5)
    set_quota(zookeeper, user=DEFAULT, client_id=DEFAULT, controller_mutation_rate=2.5)
    set_quota(zookeeper, user=DEFAULT, consumer_byte_rate=1_000_000)
    set_quota(zookeeper, client_id=CLIENT, consumer_byte_rate=7)
    set_quota(zookeeper, client_id=DEFAULT, consumer_byte_rate=8)
    set_quota(zookeeper, ip="10.0.0.1", connection_creation_rate=3)
    return sasl_cluster


@pytest.fixture(scope="module")
def command_config(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The login as kafka-configs.sh takes it."""
    path = tmp_path_factory.mktemp("config") / "client.properties"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{login} username="alice" password="{cluster.users["alice"]}";'
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    }
    path.write_text(java_properties(properties), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sources(
    cluster: Cluster, command_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Options of each source; the tables as the watcher writes them."""
    directory = tmp_path_factory.mktemp("sources")
    file = directory / "quotas.yaml"
    file.write_text(QUOTAS, encoding="utf-8")
    tables = str(directory / "tables")
    watcher = Watcher(Settings(tables=tables, quotas=Quotas(zookeeper_connect=cluster.zookeeper_connect)))
    watcher.start()
    watcher.stop()
    until_in_force(Settings(tables=tables))
    return {
        "zookeeper": ["--zookeeper", cluster.zookeeper_connect],
        "admin": ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(command_config)],
        "file": ["--quotas", str(file)],
        "tables": ["--tables", tables],
    }


def kquota(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    program = [sys.executable, "-m", "kquota_spark.cli.main", *arguments]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WITHIN_S)


def in_force(book: RuleBook) -> dict[Entity, dict[AnyKey, float]]:
    """All quotas at the end of time, entities without any left out."""
    last = {entity: book.at(entity, END_MS) for entity in book}
    return {entity: dict(period.values) for entity, period in last.items() if period and period.values}


def test_four_sources_hold_the_same_quotas(cluster: Cluster, sources: dict[str, list[str]]) -> None:
    by_file = in_force(from_file(Path(sources["file"][1])).book)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "alice",
        "sasl.password": cluster.users["alice"],
    }

    def by_admin() -> QuotaHistory:
        return from_admin(cluster.bootstrap_servers, login, timeout_ms=15_000)

    # The broker learns of the last edit a moment after ZooKeeper.
    assert wait_for(lambda: in_force(by_admin().book) == by_file, within_s=WITHIN_S)
    assert len(by_file) == 9
    zookeeper = from_zookeeper(Quotas(zookeeper_connect=cluster.zookeeper_connect))
    assert in_force(zookeeper.book) == by_file
    assert (zookeeper.problems, zookeeper.has_history, by_admin().has_history) == ((), False, False)
    tables = from_tables(Settings(tables=sources["tables"][1]))
    assert in_force(tables.book) == by_file
    assert tables.has_history and tables.cluster_id == "kafka"


@pytest.mark.parametrize(
    ("user", "client_id"),
    [
        ("alice", "etl"),
        ("alice", "x"),
        ("alice", ""),
        (DN, CLIENT),
        ("bob", CLIENT),
        ("bob", "x"),
        ("bob", ""),
    ],
)
def test_four_sources_resolve_alike(
    sources: dict[str, list[str]], user: str, client_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kquota_spark.cli.main import main

    found: dict[str, list[dict[str, Any]]] = {}
    for source, options in sources.items():
        asked = ["resolve", "--user", user, "--client-id", client_id, "--walk", "--output", "json", *options]
        assert main(asked) == 0
        found[source] = json.loads(capsys.readouterr().out)["rows"]
        for row in found[source]:
            # When an edit was made, the sources tell differently or not at all.
            del row["rule_version"], row["valid_from"], row["valid_to"]
            for step in row["walk"]:
                # ZooKeeper's tables and a file also know entities without a quota of any key.
                step["standing"] = {"other_keys": "absent"}.get(step["standing"], step["standing"])
    assert found["zookeeper"] == found["file"] == found["admin"] == found["tables"]
    assert any(row["limit"] is not None for row in found["file"])


@pytest.mark.parametrize("source", ["zookeeper", "admin"])
def test_a_running_cluster_answers_within_a_second(source: str, sources: dict[str, list[str]]) -> None:
    took_s, loaded_s = [], []
    for _ in range(3):
        begin_s = time.monotonic()
        subprocess.run([sys.executable, "-c", CLIENTS], cwd=ROOT, check=True)
        loaded_s.append(time.monotonic() - begin_s)
        begin_s = time.monotonic()
        done = kquota("explain", "--user", "alice", "--client-id", "etl", *sources[source])
        took_s.append(time.monotonic() - begin_s)
        assert (done.returncode, done.stderr) == (0, "")
        assert "300 kB/s: 300,000 bytes per second" in done.stdout
    print(f"kquota explain by {source}: {took_s} s; a Python that loads the clients: {loaded_s} s")
    # A second where Python loads the clients of ZooKeeper and Kafka in 0.2 s, and more where that takes longer.
    assert min(took_s) < max(1.0, 5 * min(loaded_s))


def test_a_replay_by_the_quotas_of_now_says_so(cluster: Cluster) -> None:
    log = str(ROOT / "tests" / "data" / "jmx-telegraf" / "broker-1.kafka-request.log.gz")
    done = kquota("replay", log, "--zookeeper", cluster.zookeeper_connect, "--output", "json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    source = f"ZooKeeper {cluster.zookeeper_connect}"
    assert answer["source"] == source
    assert answer["notes"] == [
        f"{source} has only the quotas of now: replayed as if they had always been in force"
    ]


def test_refusals_are_one_line(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.username=alice\nsasl.password=c4nary\n", encoding="utf-8"
    )
    server = cluster.bootstrap_servers
    done = kquota("resolve", "--bootstrap-server", server, "--command-config", str(wrong))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kquota: Kafka {server} refused the login: check --command-config\n"
    done = kquota("resolve", "--zookeeper", f"{cluster.zookeeper_connect}/none")
    assert done.stderr == (
        f"kquota: ZooKeeper {cluster.zookeeper_connect}/none: /config/users does not exist: check the chroot of "
        "--zookeeper and the rights of its nodes\n"
    )
    done = kquota("resolve", "--zookeeper", cluster.zookeeper_connect, "--at", "1h")
    assert (done.returncode, done.stderr) == (1, (
        f"kquota: --at: ZooKeeper {cluster.zookeeper_connect} has only the quotas of now: leave --at out, or use "
        "--tables or --quotas\n"
    ))  # fmt: skip
    with pytest.raises(UserError, match=r"did not answer within 0\.5 s"):
        from_admin(server, {}, timeout_ms=Duration(500))


def test_one_client_is_read_as_the_whole_is(cluster: Cluster) -> None:
    # Brokers decode client ids when they read them: this is "a b" in another spelling.
    odd = {
        "clients/a+b": b'{"config": {"producer_byte_rate": "9"}}',
        "users/broken": b'{"config": {"producer_byte_rate": "many"}}',
        "clients/bad%zz": b"{}",
    }
    with connected(cluster.zookeeper_connect) as client:
        for path, data in odd.items():
            client.create(f"/config/{path}", data)
        try:
            check_one_client_is_read_as_the_whole_is(Quotas(zookeeper_connect=cluster.zookeeper_connect))
        finally:
            for path in odd:  # the other tests know nothing of them
                client.delete(f"/config/{path}")


def check_one_client_is_read_as_the_whole_is(quotas: Quotas) -> None:
    whole = from_zookeeper(quotas)
    other_spelling = from_zookeeper(quotas, Client("broken", "a b"))
    assert in_force(other_spelling.book) == {
        entity: values
        for entity, values in in_force(whole.book).items()
        if entity in candidates("broken", "a b")
    }
    assert in_force(other_spelling.book)[Entity(None, "a b")] == {QuotaKey.PRODUCER_BYTE_RATE: 9.0}
    broken = (
        "users/broken: producer_byte_rate is not a whole number of 64 bits: brokers keep what they had for it "
        "and the keys after it"
    )
    assert broken in whole.problems
    assert [problem for problem in other_spelling.problems if problem.startswith("users/")] == [broken]
    assert from_zookeeper(quotas, Client("alice", "etl")).problems != (broken,)
