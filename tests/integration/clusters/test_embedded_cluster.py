"""The embedded cluster is real: these tests start it, break it, and look at the processes that are left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster, logged_lines
from kquota_spark.embedded.demo.load import ClientPlan, ClientResult, run_load
from kquota_spark.embedded.readiness import connected
from kquota_spark.embedded.servers import ZOOKEEPER
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.process.processes import wait_for
from tests.support.clusters.outages import kill, pause, restart, resume
from tests.support.clusters.pressing import sending
from tests.support.clusters.waiting import until_brokers_act
from tests.support.clusters.zookeeper_edits import remove_quota, set_quota

# Names and a password that break a JAAS line or a properties file if they are not quoted and escaped.
USERS = {"alice": "a", "team:pay+ments@corp": 'p"w\\2 ü', "CN=app-1,OU=x": "it's; =#!"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A comma and a blank in the path: log.dirs is a list with commas.
    directory = tmp_path_factory.mktemp("a cluster, with users")
    with embedded_cluster(directory, brokers=2, settings=BrokerSettings(users=USERS)) as running:
        create_topics(running, {"orders": 2})
        yield running


def produce(cluster: Cluster, user: str | None, client_id: str, requests: int = 1) -> None:
    from confluent_kafka import Producer

    settings: dict[str, str | int | float | bool] = {**cluster.client_settings(user), "client.id": client_id}
    producer = Producer({**settings, "log_level": 0})
    for _ in range(requests):
        producer.produce("orders", b"x" * 1000, partition=0)
        assert producer.flush(60) == 0


def logged_produces(cluster: Cluster, client_id: str) -> list[dict[str, Any]]:
    """The PRODUCE lines of a client in all request logs."""
    found = []
    for broker in cluster.brokers:
        for line in map(bytes.decode, logged_lines(broker.request_log)):
            head, _, tail = line.partition("Completed request:")
            assert head.endswith(" DEBUG "), line
            request = json.loads(tail.removesuffix(" (kafka.request.logger)"))
            header = request["requestHeader"]
            if (header["clientId"], header["requestApiKeyName"]) == (client_id, "PRODUCE"):
                found.append(request)
    return found


def error_code(request: dict[str, Any]) -> int:
    """What the broker answered to a PRODUCE of one partition; 0 is none."""
    code: int = request["response"]["responses"][0]["partitionResponses"][0]["errorCode"]
    return code


@pytest.mark.parametrize("user", USERS)
def test_a_produce_of_each_user_is_one_line_of_the_request_log(cluster: Cluster, user: str) -> None:
    client_id = f"app-{list(USERS).index(user)}"
    produce(cluster, user, client_id)

    def taken() -> list[dict[str, Any]]:
        # A broker that has not heard yet that it leads refuses, which is a line too, and the client sends again.
        return [line for line in logged_produces(cluster, client_id) if error_code(line) == 0]

    # The broker writes the line after it has answered.
    assert wait_for(lambda: bool(taken()), within_s=60)
    [request] = taken()
    assert request["principal"] == f"User:{user}"
    assert request["request"]["topicData"][0]["name"] == "orders"


def test_a_wrong_password_is_refused(cluster: Cluster) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    codes: list[int] = []
    settings: dict[str, Any] = {**cluster.client_settings("alice"), "log_level": 0}
    settings |= {"sasl.password": "wrong", "error_cb": lambda error: codes.append(error.code())}
    client = AdminClient(settings)

    def is_refused() -> bool:
        # The broker closes the connection right after it: on a busy machine that alone may be seen first.
        client.poll(0.1)
        return KafkaError._AUTHENTICATION in codes

    assert wait_for(is_refused, within_s=60), codes


def test_a_killed_broker_comes_back_on_its_port(cluster: Cluster) -> None:
    before = cluster.brokers[0]
    kill(cluster, 1)
    assert not cluster.is_running(1)
    assert cluster.is_running(2)
    cluster.start(1)
    after = cluster.brokers[0]
    assert (after.id, after.port, after.request_log) == (before.id, before.port, before.request_log)
    assert after.pid != before.pid
    produce(cluster, "alice", "after-kill")


def test_zookeeper_and_a_broker_can_be_restarted_from_a_thread_that_ends(cluster: Cluster) -> None:
    # PR_SET_PDEATHSIG would kill the servers at the end of the thread.
    def restart_both() -> None:
        restart(cluster, ZOOKEEPER)
        restart(cluster, 2)

    thread = threading.Thread(target=restart_both)
    thread.start()
    thread.join()
    produce(cluster, "alice", "after-restart")
    assert all(cluster.is_running(server) for server in (ZOOKEEPER, 1, 2))


def test_a_paused_broker_is_running_and_answers_again_after_it(cluster: Cluster) -> None:
    pause(cluster, 1)
    try:
        assert cluster.is_running(1)
    finally:
        resume(cluster, 1)
    produce(cluster, "alice", "after-pause")


def test_a_quota_that_is_set_in_zookeeper_throttles_and_its_removal_ends_that(cluster: Cluster) -> None:
    zookeeper, user = cluster.zookeeper_connect, "team:pay+ments@corp"
    # Twenty times its limit: what goes beyond 11 samples of 10 kB is throttled in any alignment.
    plan = ClientPlan(
        "produce", "pressing", "orders", 200_000, user=user, record_bytes=500, batch_bytes=5_000, stop_s=90.0
    )
    earlier: set[str] = set()

    def lines() -> list[dict[str, Any]]:
        return [line for line in logged_produces(cluster, "pressing") if line["connection"] not in earlier]

    def is_throttled() -> bool:
        return any(line["throttleTimeMs"] for line in lines())

    def has_sent_enough() -> bool:
        parts = (line["request"]["topicData"][0]["partitionData"][0] for line in lines())
        return sum(int(part["recordsSizeInBytes"]) for part in parts) > 300_000

    set_quota(zookeeper, user=user, client_id="pressing", producer_byte_rate=10_000)
    until_brokers_act(cluster)
    throttled = run_until(is_throttled, cluster, plan)
    assert throttled.longest_throttle_ms > 0
    # The control: the same plan without the limit, for more bytes.
    remove_quota(zookeeper, user=user, client_id="pressing")
    until_brokers_act(cluster)
    earlier |= {line["connection"] for line in lines()}
    free = run_until(has_sent_enough, cluster, plan)
    assert {line["throttleTimeMs"] for line in lines()} == {0}
    assert (free.errors, free.longest_throttle_ms) == (0, 0.0)
    assert free.bytes > throttled.bytes


def run_until(condition: Callable[[], bool], cluster: Cluster, plan: ClientPlan) -> ClientResult:
    """Run one client until the broker's log shows that it is enough."""
    with sending(cluster, [plan]) as results:
        assert wait_for(condition, within_s=60)
    return results.result()[0]


def test_a_quota_keeps_the_login_that_is_in_the_same_node(cluster: Cluster) -> None:
    scram = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"}
    with connected(cluster.zookeeper_connect) as client:
        client.create(
            "/config/users/carol", json.dumps({"version": 1, "config": scram}).encode(), makepath=True
        )
        set_quota(cluster.zookeeper_connect, user="carol", producer_byte_rate=1_000_000)
        set_quota(cluster.zookeeper_connect, user="carol", request_percentage=12.5)
        document = json.loads(client.get("/config/users/carol")[0])
        limits = {"producer_byte_rate": "1000000", "request_percentage": "12.5"}
        assert document == {"version": 1, "config": scram | limits}
        remove_quota(cluster.zookeeper_connect, "producer_byte_rate", user="carol")
        assert json.loads(client.get("/config/users/carol")[0])["config"] == scram | {
            "request_percentage": "12.5"
        }
        remove_quota(cluster.zookeeper_connect, user="carol")
        assert json.loads(client.get("/config/users/carol")[0])["config"] == scram
        # An emptied node goes, with the parents that it leaves empty.
        set_quota(cluster.zookeeper_connect, user="dave", client_id=DEFAULT, consumer_byte_rate=1)
        remove_quota(cluster.zookeeper_connect, user="dave", client_id=DEFAULT)
        assert client.exists("/config/users/dave") is None


def test_a_consumer_reads_at_its_pace_and_again_from_the_start(cluster: Cluster) -> None:
    create_topics(cluster, {"short": 1})
    # 3 s at 10 kB/s; then a reader who wants 6 s x 60 kB/s, twelve times of what is there.
    [written] = run_load(
        cluster, [ClientPlan("produce", "writer", "short", 10_000, user="alice", stop_s=3.0)]
    )
    reader = ClientPlan("consume", "reader", "short", 60_000, user="alice", batch_bytes=10_000, stop_s=6.0)
    [read] = run_load(cluster, [reader])
    assert (written.errors, read.errors) == (0, 0)
    assert written.records <= 30
    assert written.records < read.records <= 360


def test_load_ends_when_it_is_told_to(cluster: Cluster) -> None:
    stop = threading.Event()
    stop.set()
    [result] = run_load(
        cluster, [ClientPlan("produce", "idle", "orders", 1_000, start_s=600, stop_s=1200)], stop
    )
    assert (result.records, result.errors) == (0, 0)


def test_a_request_log_rolls_by_size(tmp_path: Path) -> None:
    settings = BrokerSettings(request_log_bytes=20_000, request_log_files=3)
    with embedded_cluster(tmp_path, settings=settings) as cluster:
        create_topics(cluster, {"orders": 1})
        log = cluster.brokers[0].request_log
        # A line has about 1.3 kB: a hundred requests roll it six times.
        produce(cluster, None, "app", requests=100)
        assert wait_for(lambda: log.with_name(f"{log.name}.2").exists(), within_s=60)
        assert not log.with_name(f"{log.name}.4").exists()


PARENT = """
import signal, sys, time
from pathlib import Path
from kquota_spark.embedded.cluster import embedded_cluster
# Whoever starts the tests in the background of a shell makes all below them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
with embedded_cluster(Path(sys.argv[1])) as cluster:
    print(cluster.bootstrap_servers, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_parent_that_dies(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("127.0.0.1:")
        # The test of the test: they are there while the parent is.
        assert len(processes_in(tmp_path)) == 2
        os.kill(parent.pid, number)
        parent.wait(timeout=60)
    assert wait_for(lambda: not processes_in(tmp_path), within_s=60), processes_in(tmp_path)


def processes_in(directory: Path) -> list[int]:
    """The processes whose working directory is under this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(directory.resolve()):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    settings = BrokerSettings(properties={"log.retention.ms": "not a number"})
    cluster = embedded_cluster(tmp_path, settings=settings)
    with pytest.raises(UserError, match="broker-1 ended while it started") as raised:
        cluster.__enter__()
    assert str(tmp_path / "broker-1" / "server.log") in str(raised.value)
    assert "log.retention.ms" in str(raised.value)
    assert processes_in(tmp_path) == []
