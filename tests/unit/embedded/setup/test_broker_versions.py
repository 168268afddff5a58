"""Brokers of other versions and modes: their jars, and what is on disk before they start."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from kquota_spark.embedded.servers import Server, prepare
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.embedded.setup.jars import Jars, cache_dir, ensure_jars, find_jars
from kquota_spark.embedded.setup.sums import sums_path
from kquota_spark.errors import UserError
from kquota_spark.kafka.client_properties import read_properties

IVY_XML = """\
<ivy-module version="2.0">
  <info organisation="test" module="jars"/>
  <configurations>{confs}</configurations>
  <dependencies><dependency org="org.one" name="part" rev="{rev}" conf="{conf}->default"/></dependencies>
</ivy-module>
"""
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here"><artifact pattern="{registry}/[artifact]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""
SUMS = {
    "1.0": "d0ff5974b6aa52cf562bea5921840c032a860a91a3512f7fe8f768f6bbe005f6",
    "2.0": "d84bdb34d4eeef4034d77e5403f850e35bc4a51b1143e3a83510e1aaad839748",
}
LOG4J_1, LOG4J_2 = (
    Jars(broker=(Path(f"/jars/{name}.jar"),)) for name in ("reload4j-1.2.25", "log4j-core-2.24.3")
)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with two versions of one jar; the cache is the test's own."""
    for version in ("1.0", "2.0"):
        (tmp_path / f"part-{version}.jar").write_bytes(version.encode())
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(registry=tmp_path), encoding="utf-8")
    monkeypatch.setenv("KQUOTA_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("KQUOTA_JARS", str(tmp_path / "own"))
    return tmp_path


def declaration(path: Path, rev: str, conf: str = "broker") -> Path:
    text = IVY_XML.format(confs=f'<conf name="{conf}"/>', rev=rev, conf=conf)
    path.write_text(text, encoding="utf-8")
    sums_path(path).write_text(f"{SUMS[rev]}  {conf}/part-{rev}.jar\n", encoding="ascii")
    return path


def test_a_declaration_may_be_of_a_broker_alone(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KQUOTA_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(registry / "cache"))
    ivy_xml = declaration(registry / "ivy-1.xml", "1.0")
    with pytest.raises(UserError, match="jars are missing"):
        find_jars(ivy_xml)
    jars = ensure_jars(ivy_xml)
    assert jars == find_jars(ivy_xml) == Jars((), (cache_dir(ivy_xml) / "broker" / "part-1.0.jar",))


def test_declarations_do_not_replace_each_others_jars(registry: Path) -> None:
    main, other = declaration(registry / "ivy.xml", "1.0"), declaration(registry / "ivy-2.xml", "2.0")
    both = ensure_jars(main), ensure_jars(other)
    assert [jars.broker for jars in both] == [
        (registry / "own" / "broker" / "part-1.0.jar",),
        (registry / "own" / "ivy-2" / "broker" / "part-2.0.jar",),
    ]
    assert (find_jars(main), find_jars(other)) == both


def test_a_declaration_of_nothing_is_refused(registry: Path) -> None:
    ivy_xml = declaration(registry / "ivy.xml", "1.0", conf="driver")
    with pytest.raises(UserError, match=r"ivy\.xml: no configuration spark or broker in it: "):
        ensure_jars(ivy_xml)


def properties(server: Server) -> dict[str, str]:
    return read_properties(server.directory / "server.properties")


def test_a_kraft_cluster_is_one_node_that_has_to_be_formatted(tmp_path: Path) -> None:
    [node] = prepare(tmp_path, 1, BrokerSettings(users={"alice": "a"}, kraft=True), "b", LOG4J_1)
    found = properties(node)
    assert (node.name, found["node.id"], found["process.roles"]) == ("broker-1", "1", "broker,controller")
    clients, controller = found["listeners"].split(",")
    assert clients == f"SASL_PLAINTEXT://127.0.0.1:{node.port}"
    assert controller == f"CONTROLLER://{found['controller.quorum.voters'].removeprefix('1@')}"
    assert not [name for name in found if name.startswith(("zookeeper", "broker.id"))]
    assert node.command[-2:] == ("kafka.Kafka", "server.properties")
    *_, tool, verb, option, cluster_id, _, _ = node.format_command
    assert (tool, verb, option) == ("kafka.tools.StorageTool", "format", "-t")
    assert len(base64.urlsafe_b64decode(f"{cluster_id}==")) == 16
    assert stat.S_IMODE((node.directory / "server.properties").stat().st_mode) == 0o600


def test_two_kraft_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="with KRaft the cluster is one node"):
        prepare(tmp_path, 2, BrokerSettings(kraft=True), "", LOG4J_1)


def test_with_zookeeper_nothing_is_formatted(tmp_path: Path) -> None:
    zookeeper, first, second = prepare(tmp_path, 2, BrokerSettings(), "", LOG4J_1)
    assert [server.name for server in (zookeeper, first, second)] == ["zookeeper", "broker-1", "broker-2"]
    assert {server.format_command for server in (zookeeper, first, second)} == {()}
    assert properties(second)["zookeeper.connect"] == f"127.0.0.1:{zookeeper.port}"
    assert "process.roles" not in properties(second)


@pytest.mark.parametrize(
    ("jars", "name", "option"),
    [
        (LOG4J_1, "log4j.properties", "-Dlog4j.configuration=file:log4j.properties"),
        (LOG4J_2, "log4j2.yaml", "-Dlog4j2.configurationFile=log4j2.yaml"),
    ],
)
def test_the_log4j_on_the_class_path_decides_the_configuration(
    tmp_path: Path, jars: Jars, name: str, option: str
) -> None:
    [node] = prepare(tmp_path, 1, BrokerSettings(kraft=True), "", jars)
    text = (node.directory / name).read_text(encoding="ascii")
    assert "kafka.request.logger" in text
    assert "yyyy" not in text, "who reads the log is not surprised by a full hour"
    assert [part for part in node.command if part.startswith("-Dlog4j")] == [option]
    assert sorted(path.name for path in node.directory.iterdir()) == sorted([name, "server.properties"])


def test_jars_of_ones_own_come_before_kafkas(tmp_path: Path) -> None:
    settings = BrokerSettings(class_path=[tmp_path / "callback.jar"])
    zookeeper, broker = prepare(tmp_path, 1, settings, "", LOG4J_1)
    class_paths = [server.command[server.command.index("-cp") + 1] for server in (zookeeper, broker)]
    assert class_paths == ["/jars/*", f"{tmp_path / 'callback.jar'}:/jars/*"]
