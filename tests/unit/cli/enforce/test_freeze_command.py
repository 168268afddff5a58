"""`kquota freeze` stops an enforcer or says that it does not: the cluster, the switch, and who has read it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.job import Checks
from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import as_json, run
from tests.support.tables.table_rows import write_table

SAID = "cluster demo is frozen since 2026-11-21 05:42:01 UTC by eve: incident 7; kquota unfreeze lets it continue\n"
NO_SECRET = (
    "notifications.routes.ops.secret: missing, a webhook needs secret: 16 characters or more; it signs the "
    "messages"
)
READER = f"{socket.gethostname()}:{os.getpid()}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    return InMemoryCluster(tmp_path, monkeypatch, "enforce")


def freeze(*arguments: str) -> tuple[int, str, str]:
    return run("freeze", "--reason", "incident 7", *arguments)


def checks(cluster: InMemoryCluster) -> Checks:
    """Of a job that runs for the rest of the process."""
    settings = load_settings(cluster.config)
    edges = cluster.edges(settings).__enter__()
    return Checks(settings, edges, None, lambda _: None, lambda: cluster.now_ms, lambda: 0.0)


def switches(root: Path) -> list[str]:
    return [path.name for path in root.rglob("frozen-*")]


def test_the_answer_names_the_cluster_the_switch_and_who_reads_it(cluster: InMemoryCluster) -> None:
    switch = f"{cluster.root}/tables/_kquota/frozen-demo.json"
    assert freeze("--config", str(cluster.config)) == (
        0,
        f"{SAID}switch {switch}, no enforcer has read it yet; --wait waits for its confirmation\n",
        "",
    )
    job = checks(cluster)
    job.check()
    cluster.now_ms += 3_000
    read = f"{switch}, read by {READER} 3.00 s ago"
    assert freeze("--config", str(cluster.config))[1].splitlines()[1] == (
        f"switch {read}; --wait waits for its confirmation"
    )
    answer = as_json("enforce", "status", "--config", str(cluster.config))
    assert (answer["switch"], answer["switch_read"]) == (
        switch,
        {
            "reader": READER,
            "switch": switch,
            "at_ms": cluster.now_ms - 3_000,
            "frozen_since_ms": cluster.now_ms - 3_000,
        },
    )
    out = run("enforce", "status", "--config", str(cluster.config))[1]
    assert read.replace(" ", "") in "".join(out.split())


def test_without_settings_it_refuses_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal = (
        "kquota: {}cluster kafka is in none of the tables under {}: "
        "check tables and cluster_id in the settings of the enforcer (--config FILE)\n"
    )
    unset = "no conf/kquota.yaml here and no --config, so defaults hold: "
    assert freeze() == (1, "", refusal.format(unset, ".kquota/tables"))
    assert freeze("--tables", "T") == (1, "", refusal.format("", "T"))
    assert run("unfreeze") == (1, "", refusal.format(unset, ".kquota/tables"))
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_in_no_table_is_refused(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cluster.root)  # which has no conf/kquota.yaml
    tables = str(cluster.root / "tables")
    known = f"is in none of the tables under {tables}, which hold demo: check tables and cluster_id in"
    assert freeze("--tables", tables) == (
        1,
        "",
        f"kquota: cluster kafka {known} the settings of the enforcer (--config FILE)\n",
    )
    text = cluster.config.read_text(encoding="utf-8").replace("cluster_id: demo", "cluster_id: dmeo")
    cluster.config.write_text(text, encoding="utf-8")
    refused = (1, "", f"kquota: cluster dmeo {known} {cluster.config}\n")
    assert freeze("--config", str(cluster.config)) == refused
    assert run("unfreeze", "--config", str(cluster.config)) == refused
    assert switches(cluster.root) == []


@pytest.mark.parametrize("table", ["enforcement_log", "quota_rules", "decisions", "usage", "requests"])
def test_a_row_in_any_table_is_enough(table: str, tmp_path: Path) -> None:
    row = {
        "enforcement_log": {
            "plan_id": "p-1", "step": 1, "sequence": 1, "event": "planned", "at": 1, "entity": "users/a",
            "key": "producer_byte_rate", "policy": "p", "reason": "r", "evidence": "{}", "mode": "observe",
            "actor": "a", "is_penalty": False, "detail": "", "event_date": 0,
        },
        "quota_rules": {"level": 0, "source": "zookeeper", "known_through": 1},
        "decisions": {}, "usage": {}, "requests": {},
    }[table]  # fmt: skip
    write_table(tmp_path / "tables", table, {"cluster_id": "prod", **row})
    config = tmp_path / "kquota.yaml"
    config.write_text(f"cluster_id: prod\ntables: {tmp_path}/tables\n", encoding="utf-8")
    assert freeze("--config", str(config))[0] == 0
    assert switches(tmp_path) == ["frozen-prod.json"]


def test_tables_that_cannot_be_read_keep_nobody_from_freezing(cluster: InMemoryCluster) -> None:
    [commit] = (cluster.root / "tables" / "quota_rules" / "_delta_log").glob("*1.json")
    commit.write_text("{", encoding="utf-8")
    assert freeze("--config", str(cluster.config))[0] == 0
    assert switches(cluster.root) == ["frozen-demo.json"]


def test_a_switch_that_was_left_for_an_unknown_cluster_can_be_removed(cluster: InMemoryCluster) -> None:
    freeze("--config", str(cluster.config))
    text = cluster.config.read_text(encoding="utf-8").replace("cluster_id: demo", "cluster_id: old")
    cluster.config.write_text(text, encoding="utf-8")
    place = cluster.root / "tables" / "_kquota"
    (place / "frozen-demo.json").rename(place / "frozen-old.json")
    assert run("unfreeze", "--config", str(cluster.config))[0] == 0
    assert switches(cluster.root) == []


def test_wait_ends_when_the_enforcer_has_read_the_switch(cluster: InMemoryCluster) -> None:
    job = checks(cluster)
    job.check()  # it reads the switch while that is off
    switch, answers = FreezeSwitch(load_settings(cluster.config)), list[str]()
    waiting = threading.Thread(
        target=lambda: answers.append(freeze("--wait", "--config", str(cluster.config))[1])
    )
    waiting.start()
    while switch.frozen() is None:
        pass
    assert waiting.is_alive()
    job.check()
    waiting.join(60)
    assert answers == [f"{SAID}confirmed: {READER} has read it and sends nothing\n"]


def test_nobody_confirms_while_another_enforcer_may_be_sending(cluster: InMemoryCluster) -> None:
    job, switch = checks(cluster), FreezeSwitch(load_settings(cluster.config))
    cluster.leases.take("another")
    freeze("--config", str(cluster.config))
    job.check()
    assert switch.reading() is None
    cluster.leases.holder = None
    job.check()
    reading = switch.reading()
    assert reading is not None and reading.frozen_since_ms == cluster.now_ms


def test_without_a_confirmation_wait_fails_and_the_switch_stays_on(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota_spark.cli.enforce.freeze._CHECK_S", 1.0)
    text = cluster.config.read_text(encoding="utf-8").replace(
        "enforcement: {", "enforcement: {trigger: 1 ms, "
    )
    cluster.config.write_text(text, encoding="utf-8")
    code, out, err = freeze("--wait", "--config", str(cluster.config))
    assert (code, out) == (1, SAID)
    assert err == (
        "kquota: no enforcer has confirmed within 1 s, the switch stays on: "
        f"{cluster.root}/tables/_kquota/frozen-demo.json, no enforcer has read it yet: "
        "does kquota enforce run work with these tables and this cluster_id?\n"
    )
    assert switches(cluster.root) == ["frozen-demo.json"]


@pytest.mark.parametrize(
    ("text", "mistake", "more"),
    [
        (
            'notifications: {routes: {ops: {kind: webhook, url: "http://host/"}}}',
            NO_SECRET,
            "",
        ),
        ("kafka: {topik: lines}", "kafka.topik: unknown key, did you mean topic?", ""),
        (
            "stream: 7\nquotas: {source: postgres}",
            "quotas.source: 'postgres', expected one of zookeeper, admin, file",
            " (and 1 more)",
        ),
        ("enforcment: {}", "enforcment: unknown key, did you mean enforcement?", ""),
        ("broker: {version: three}", "broker.version: 'three' is no version, expected e.g. 3.9 or 3.7.2", ""),
        ("checkpoints: [1]", "checkpoints: a list, expected a text", ""),
    ],
)
def test_freeze_and_unfreeze_need_a_cluster_and_tables_and_warn_of_all_else(
    cluster: InMemoryCluster, text: str, mistake: str, more: str
) -> None:
    for command, file in ((freeze, "a.yaml"), (lambda *words: run("unfreeze", *words), "b.yaml")):
        config = cluster.root / file
        config.write_text(f"cluster_id: demo\ntables: {cluster.root}/tables\n{text}\n", encoding="utf-8")
        code, out, err = command("--config", str(config))
        assert (code, out.splitlines()[0][:12]) == (0, "cluster demo")
        assert (
            err == f"kquota: warning: {config}: {mistake}{more}; kquota doctor --before lists all mistakes\n"
        )
        assert len(switches(cluster.root)) == (1 if file == "a.yaml" else 0)


def test_freeze_does_not_guess_a_cluster_or_tables(cluster: InMemoryCluster) -> None:
    for text, mistake in (
        (
            f"tables: {cluster.root}/tables\nclusterid: demo",
            "clusterid: unknown key, did you mean cluster_id?",
        ),
        ("cluster_id: demo\ntables: [1]", "tables: a list, expected a text"),
        (
            "cluster_id: demo\ntables: {place: x}",
            "tables.place: unknown key, expected one of location, requests",
        ),
    ):
        cluster.config.write_text(f"{text}\n", encoding="utf-8")
        code, out, err = freeze("--config", str(cluster.config))
        assert (code, out) == (1, "")
        assert err == f"kquota: {cluster.config}: {mistake}\n"
    assert switches(cluster.root) == []


def test_a_command_fails_with_all_mistakes_if_it_uses_a_part_that_has_one(cluster: InMemoryCluster) -> None:
    mistakes = [
        "stream: 7, expected a mapping of keys",
        NO_SECRET,
    ]
    with cluster.config.open("a", encoding="utf-8") as file:
        file.write('stream: 7\nnotifications: {routes: {ops: {kind: webhook, url: "http://host/"}}}\n')
    lines = [f"{cluster.config}: {mistake}" for mistake in mistakes]
    assert run("notify", "--dry-run", "--config", str(cluster.config)) == (
        1,
        "",
        "".join(f"kquota: {line}\n" for line in lines),
    )
    checks = run("doctor", "--before", "--output", "csv", "--config", str(cluster.config))
    assert (checks[0], [line for line in lines if line not in checks[1]]) == (2, [])
    assert run("violations", "--config", str(cluster.config))[0] == 0
