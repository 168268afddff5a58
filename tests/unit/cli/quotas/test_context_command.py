"""Connections saved by name: the file, its problems, and which cluster a command means."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path

import pytest

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, chosen_address
from kquota_spark.config.contexts import Context, Contexts, contexts_file, load_contexts, save_contexts
from kquota_spark.errors import UserError
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.quotas.backends import ClusterAddress
from tests.support.programs.command_output import as_json, run, shown
from tests.support.quotas.old_broker import old_broker


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in, with a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "KQUOTA_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "login.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.password=canary\n", encoding="utf-8"
    )
    (tmp_path / "conf").mkdir()
    return tmp_path


def choice(*arguments: str) -> ClusterAddress:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    return chosen_address(parser.parse_args(arguments))


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as raised:
        choice(*arguments)
    return str(raised.value)


def write_config(home: Path, text: str) -> None:
    (home / "conf" / "kquota.yaml").write_text(text, encoding="utf-8")


def test_a_context_is_added_listed_shown_used_and_deleted(home: Path) -> None:
    file = home / "home" / ".config" / "kquota" / "contexts.yaml"
    assert shown("context", "list") == "no context is saved: see kquota context add\n"
    added = ("context", "add", "cp-demo", "--bootstrap-server", "b1:9092,b2:9092", "--command-config")
    said = f"context cp-demo: Kafka b1:9092,b2:9092, saved in {file}\n"
    assert run(*added, "login.properties") == (0, said, "")
    run("context", "add", "old", "--zookeeper", "zk:2181/kafka")
    assert shown("context", "use", "old") == "context old is in use: ZooKeeper zk:2181/kafka\n"
    assert shown("context", "list").splitlines()[2] == "*  old      ZooKeeper zk:2181/kafka  -"
    [row] = as_json("context", "show", "cp-demo")["rows"]
    assert row == {
        "name": "cp-demo", "is_in_use": False, "bootstrap_server": "b1:9092,b2:9092",
        "command_config": str(home / "login.properties"), "zookeeper": None, "config": None,
    }  # fmt: skip
    assert as_json("context", "show")["rows"][0]["name"] == "old"
    assert shown("context", "delete", "old") == "context old is forgotten; none is in use now\n"
    assert [row["name"] for row in as_json("context", "list")["rows"]] == ["cp-demo"]


def test_the_file_is_for_its_owner_alone_and_holds_no_secret(home: Path) -> None:
    run("context", "add", "a", "--bootstrap-server", "b:9092", "--command-config", "login.properties")
    file = home / "home" / ".config" / "kquota" / "contexts.yaml"
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert "canary" not in file.read_text(encoding="utf-8")
    assert [each.name for each in file.parent.iterdir()] == ["contexts.yaml"]


def test_the_environment_names_the_file(home: Path) -> None:
    assert contexts_file({"KQUOTA_CONTEXTS": "here.yaml"}) == Path("here.yaml")
    assert contexts_file({"XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/kquota/contexts.yaml")
    at_home = home / "home" / ".config" / "kquota" / "contexts.yaml"
    assert contexts_file({"XDG_CONFIG_HOME": "relative"}) == contexts_file({}) == at_home


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "a"), "context a: give --bootstrap-server, --zookeeper or --config"),
        (("add", "a b", "--zookeeper", "z"), "contexts.a b: expected a name of letters, digits, '.', '_' and '-'"),
        (
            ("add", "a", "--zookeeper", "z", "--command-config", "login.properties"),
            "contexts.a.command_config: only with bootstrap_server; the login of ZooKeeper is in config",
        ),
        (
            ("add", "a", "--bootstrap-server", "b", "--command-config", "x"),
            "x: cannot be read: No such file or directory",
        ),
        (("add", "b", "--zookeeper", "z"), "context b is there already: kquota context delete b first"),
        (("use", "c"), "context c: not in contexts.yaml, which has b: add it by kquota context add"),
        (("delete", "c"), "context c: not in contexts.yaml, which has b: add it by kquota context add"),
        (("show",), "no context is in use: name one, or choose it by kquota context use NAME"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_one_line(
    arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQUOTA_CONTEXTS", "contexts.yaml")
    run("context", "add", "b", "--bootstrap-server", "b:9092")
    assert run("context", *arguments) == (1, "", f"kquota: {problem}\n")


def test_every_problem_of_the_file_is_a_line(home: Path) -> None:
    file = home / "contexts.yaml"
    file.write_text(
        "in_use: gone\ncontexts:\n  a: {bootstrap_server: b, zookeeper: z}\n  -x: {zookeeper: z, command_config: f}\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError) as raised:
        load_contexts(file)
    assert str(raised.value).splitlines() == [
        f"{file}: contexts.a: bootstrap_server and zookeeper, expected one of them",
        f"{file}: contexts.-x: expected a name of letters, digits, '.', '_' and '-'",
        f"{file}: contexts.-x.command_config: only with bootstrap_server; the login of ZooKeeper is in config",
        f"{file}: in_use: 'gone', expected one of a, -x",
    ]
    file.write_text("contexts: {a: {zookeper: z}}\nother: 1\n", encoding="utf-8")
    with pytest.raises(UserError) as raised:
        load_contexts(file)
    assert [line.partition(": ")[2] for line in str(raised.value).splitlines()] == [
        "other: unknown key, expected one of in_use, contexts",
        "contexts.a.zookeper: unknown key, did you mean zookeeper?",
    ]


def test_what_is_saved_is_loaded(home: Path) -> None:
    contexts = Contexts(
        in_use="1",
        contexts={"1": Context(zookeeper="z:2181", config="/c"), "no": Context(bootstrap_server="b:1")},
    )
    save_contexts(home / "c" / "contexts.yaml", contexts)
    assert load_contexts(home / "c" / "contexts.yaml") == contexts


def test_an_option_names_the_cluster_before_anything_else(home: Path) -> None:
    run("context", "add", "prod", "--bootstrap-server", "prod:9092", "--command-config", "login.properties")
    run("context", "use", "prod")
    write_config(home, "quotas: {zookeeper_connect: 'conf:2181', connect_timeout: 3 s}\n")
    by_brokers = choice("--bootstrap-server", "b:1", "--command-config", "login.properties")
    assert (by_brokers.bootstrap_servers, by_brokers.properties["sasl.password"]) == ("b:1", "canary")
    assert "canary" not in repr(by_brokers)
    by_zookeeper = choice("--zookeeper", "z:1")
    assert (by_zookeeper.bootstrap_servers, by_zookeeper.quotas.zookeeper_connect) == ("", "z:1")
    assert by_zookeeper.quotas.connect_timeout == 3_000
    by_context = choice("--context", "prod")
    assert (by_context.bootstrap_servers, by_context.properties["sasl.password"]) == ("prod:9092", "canary")
    assert by_context.named == Named(
        "context prod: bootstrap_server", "context prod: command_config", "--zookeeper"
    )


def test_a_context_takes_nothing_from_the_settings_of_the_directory(home: Path) -> None:
    """Their login may be for another cluster."""
    write_config(home, "quotas: {zookeeper_login: {user: kquota, password: canary}}\n")
    run("context", "add", "old", "--zookeeper", "z:1")
    run("context", "add", "own", "--zookeeper", "z:1", "--config", "conf/kquota.yaml")
    assert choice("--context", "old").quotas.zookeeper_login.user == ""
    assert choice("--context", "own").quotas.zookeeper_login.user == "kquota"
    assert choice("--context", "old", "--config", "conf/kquota.yaml").quotas.zookeeper_login.user == "kquota"


def test_settings_do_not_replace_the_cluster_of_a_context_that_is_one_by_its_own(home: Path) -> None:
    """`--context prod --config other.yaml` must not alter the cluster of other.yaml."""
    write_config(home, "quotas: {zookeeper_connect: 'prod:2181'}\n")
    (home / "other.yaml").write_text("quotas: {zookeeper_connect: 'other:2181'}\n", encoding="utf-8")
    run("context", "add", "prod", "--config", "conf/kquota.yaml")
    assert choice("--context", "prod").quotas.zookeeper_connect == "prod:2181"
    assert refused("--context", "prod", "--config", "other.yaml") == (
        f"context prod is the cluster of {home}/conf/kquota.yaml, and --config other.yaml another: "
        "leave one of them out"
    )


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("cluster_id: prod\n", "quotas.zookeeper_connect"),
        ("quotas: {connect_timeout: 5 s}\n", "quotas.zookeeper_connect"),
        ("quotas: {source: admin}\n", "kafka.bootstrap_servers"),
        ("quotas: {source: admin}\nkafka: {client_id: a}\n", "kafka.bootstrap_servers"),
    ],
)
def test_an_address_that_is_only_a_default_is_no_cluster_to_alter(
    home: Path, settings: str, key: str
) -> None:
    write_config(home, settings)
    assert refused() == (
        f"which cluster: the settings do not say {key}, and none is guessed: set it, or give "
        "--zookeeper, --bootstrap-server or --context"
    )


def test_without_an_option_it_is_the_one_that_there_is(home: Path) -> None:
    assert refused() == (
        "which cluster: give --bootstrap-server, --zookeeper, --context or --config, "
        "or name one by kquota context use"
    )
    write_config(home, "quotas: {zookeeper_connect: 'conf:2181'}\n")
    assert choice().quotas.zookeeper_connect == "conf:2181"
    run("context", "add", "prod", "--zookeeper", "prod:2181")
    assert choice().quotas.zookeeper_connect == "conf:2181", "a context that is only saved is not meant"
    run("context", "use", "prod")
    assert refused() == (
        "which cluster: context prod is in use, and there is conf/kquota.yaml: "
        "say --context prod or --config conf/kquota.yaml"
    )
    assert choice("--config", "conf/kquota.yaml").quotas.zookeeper_connect == "conf:2181"
    (home / "conf" / "kquota.yaml").unlink()
    assert choice().quotas.zookeeper_connect == "prod:2181"


def test_the_settings_own_source_is_the_cluster(home: Path) -> None:
    write_config(home, "quotas: {source: admin}\nkafka: {bootstrap_servers: 'b:1', options: {acks: c}}\n")
    found = choice()
    assert (found.bootstrap_servers, found.properties, found.named) == ("b:1", {"acks": "c"}, Named())
    write_config(home, "quotas: {source: file, file: q.yaml}\n")
    assert refused() == (
        "quotas.source: a file is no cluster: name one by --bootstrap-server, --zookeeper or --context"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--context", "a", "--zookeeper", "z"), "--context and --zookeeper: name one cluster"),
        (("--context", "a", "--command-config", "f"), "--command-config: only with --bootstrap-server"),
        (("--bootstrap-server", " "), "--bootstrap-server: ' ', expected host:port,host:port"),
        (("--bootstrap-server", "b:1", "--command-config", "none"), "none: cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_what_is_ambiguous_or_missing_is_one_line(arguments: tuple[str, ...], problem: str) -> None:
    assert refused(*arguments) == problem


def test_resolve_takes_a_context_as_its_source() -> None:
    run("context", "add", "gone", "--zookeeper", "127.0.0.1:1")
    asked = ("resolve", "--user", "a", "--client-id", "c")
    code, out, err = run(*asked, "--context", "gone")
    assert (code, out) == (1, "")
    assert err.startswith(
        "kquota: ZooKeeper 127.0.0.1:1 did not answer (connection refused): check context gone: zookeeper"
    )
    assert run(*asked, "--context", "gone", "--zookeeper", "z")[2] == (
        "kquota: --zookeeper and --context: quotas come from one source, name one of them\n"
    )


def test_brokers_without_quota_calls_are_one_line_that_says_what_to_use_instead() -> None:
    with old_broker() as address:
        run("context", "add", "old", "--bootstrap-server", address)
        run("context", "use", "old")
        problem = f"kquota: Kafka {address} is older than 2.6 and has no calls for quotas: use --zookeeper\n"
        assert run("kfk", "query", "--kafka", "old") == (1, "", problem)
        assert run("resolve", "--user=a", "--client-id=c", "--bootstrap-server", address) == (1, "", problem)
