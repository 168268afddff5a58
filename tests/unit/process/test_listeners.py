"""A person hears within two seconds that nobody listens, of either kind of server and in whatever way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.process.listeners import require_listener, require_ports
from tests.support.programs.command_output import run

FREE = "127.0.0.1:1"
"""Nobody may listen there without being root, and nobody does."""
SOON_S = 2.0


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that answers no SYN: its queue of connections is full."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield "127.0.0.1:{1}".format(*server.getsockname())


def problem_of(servers: str) -> str:
    began_s = time.monotonic()
    with pytest.raises(UnreachableError) as refused:
        require_listener("Kafka", servers, "--bootstrap-server")
    assert time.monotonic() - began_s < SOON_S
    return str(refused.value)


def test_a_refusal_an_unknown_host_and_silence_are_told_at_once(silent: str) -> None:
    after = "check --bootstrap-server and that the server runs"
    assert problem_of(FREE) == f"Kafka {FREE} did not answer (connection refused): {after}"
    assert (
        problem_of("none.invalid:9092") == f"Kafka none.invalid:9092 did not answer (no such host): {after}"
    )
    assert problem_of(silent) == f"Kafka {silent} did not answer (silent for 1.5 s): {after}"
    both = f"{FREE},none.invalid:2181/kafka"
    assert "connection refused" in problem_of(both) and "no such host" in problem_of(both)


def test_one_of_several_that_listens_is_enough(silent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = "127.0.0.1:{1}".format(*server.getsockname())
        for servers in (f"{silent},{there}", f"{FREE}, SASL_SSL://{there}", f"{FREE},{there}/chroot/below"):
            require_listener("Kafka", servers, "x")


@pytest.mark.parametrize("servers", ["", "host", "host:", "::1", "host:99x", "a:1,b"])
def test_another_form_is_left_to_the_library(servers: str) -> None:
    require_listener("Kafka", servers, "x")


@pytest.mark.parametrize(
    "command",
    [
        ["describe", "--bootstrap-server", FREE],
        ["describe", "--zookeeper", FREE],
        ["resolve", "--user", "a", "--zookeeper", FREE],
        ["explain", "--user", "a", "--client-id", "b", "--bootstrap-server", FREE],
        ["export", "--zookeeper", FREE],
        ["kfk", "query", "-c", "client.properties"],
        ["quotas", "disable", "--config", "kquota.yaml"],
        ["enforce", "plan", "--config", "kquota.yaml"],
        ["watch", "--once", "--config", "kquota.yaml"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("source", ["zookeeper", "admin"])
def test_commands_of_people_do_not_wait(
    command: list[str], source: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path_factory.mktemp("there")
    monkeypatch.chdir(directory)
    (directory / "client.properties").write_text(f"bootstrap.servers={FREE}\n")
    (directory / "kquota.yaml").write_text(
        f"quotas: {{source: {source}, zookeeper_connect: '{FREE}'}}\nkafka: {{bootstrap_servers: '{FREE}'}}\n"
        "enforcement: {allow_open_nodes: true}\n"
    )
    began_s = time.process_time()
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert f"{FREE} did not answer (connection refused): check " in err and err.count("\n") == 1
    assert time.process_time() - began_s < SOON_S


def test_a_port_that_no_server_can_have_is_refused_before_anything_is_asked() -> None:
    require_ports("a:1,b:65535", "--bootstrap-server")
    for server in ("b:65536", "b:0"):
        with pytest.raises(UserError) as refused:
            require_ports(f"a:1,{server}", "--bootstrap-server")
        assert str(refused.value) == (
            f"--bootstrap-server: {server}: no port has this number, expected 1 to 65535"
        )


def test_a_zookeeper_without_a_port_is_asked_at_2181_and_told_at_once() -> None:
    began_s = time.monotonic()
    code, out, err = run("describe", "--zookeeper", "none.invalid/kafka")
    assert (code, out) == (1, "")
    assert err == (
        "kquota: ZooKeeper none.invalid:2181 did not answer (no such host): "
        "check --zookeeper and that the server runs\n"
    )
    assert time.monotonic() - began_s < 10  # the library alone waits for 15 s
