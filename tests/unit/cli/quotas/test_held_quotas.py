"""Who edits a quota that enforcement has set is told so, and what becomes of it; nobody is kept from it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.cli.quotas.held_quotas import held_notes, held_steps
from kquota_spark.config.contexts import Context, Contexts, save_contexts
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import LIFT, Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.model.quotas.entities import Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import IpQuotaKey, QuotaKey
from tests.support.clock import set_clock
from tests.support.enforcement.enforcement_cluster import InMemoryCluster
from tests.support.programs.command_output import run
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens
from tests.support.tables.table_rows import T0_MS

ALICE, BOB = Entity("alice"), Entity("bob")
KEY, OTHER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
UNTIL_MS = T0_MS + 900_000
"""2026-11-21 05:55:00 UTC."""
HAS_SET = "users/alice producer_byte_rate: enforcement has set it to"
PENALTY = f"{HAS_SET} 500,000 (penalty, plan p-1)"
FOR_NOW = f"{PENALTY} until 2026-11-21 05:55:00 UTC:"
FOR_GOOD = "to set it for good run kquota enforce rollback p-1 first"
IS_LIFTED = "users/alice producer_byte_rate: kquota lift has lifted it, and kquota lift --end"


def step(
    number: int, *events: Event, before: float | None = 1e6, after: float | None = 5e5,
    until_ms: int | None = UNTIL_MS, policy: str = "penalty", entity: Entity = ALICE,
) -> list[LogEntry]:  # fmt: skip
    proposal = Proposal(
        Quota(entity, KEY), before, after, policy, "why", until_ms, Evidence(T0_MS, T0_MS, 0, 0, 0)
    )
    return [
        LogEntry(
            StepId(f"p-{number}", 1), event, T0_MS + at_ms, proposal, Mode.ENFORCE, "enforcer",
            fencing=1 if event not in (Event.PLANNED, Event.APPROVED) else None,
            note="n" if event is Event.SENDING else None,
        )
        for at_ms, event in enumerate((Event.PLANNED, *events))
    ]  # fmt: skip


SENT = (Event.SENDING, Event.APPLIED)
LIFTED = step(1, *SENT, after=None, until_ms=None, policy=LIFT)


def notes(
    root: Path, log: list[LogEntry], has: float | None, to: float | None, now_ms: int = T0_MS
) -> list[str]:
    settings = Settings(tables=str(root))
    EnforcementLog(settings).append(log)
    return held_notes(held_steps(settings, [ALICE]), [QuotaEdit(ALICE, KEY, has, to)], now_ms)


@pytest.mark.parametrize(
    ("log", "has", "to", "said"),
    [
        (step(1, *SENT), 5e5, 8e5, f"{FOR_NOW} what you set stays, 1,000,000 does not come back then"),
        (step(1, *SENT), 5e5, None, f"{FOR_NOW} it stays removed, 1,000,000 does not come back then"),
        (step(1, *SENT, before=None), 5e5, 8e5, f"{FOR_NOW} what you set stays, it is not removed then"),
        # The value that is there is taken for enforcement's own.
        (step(1, *SENT), 5e5, 5e5, f"{FOR_NOW} then 1,000,000 comes back; {FOR_GOOD}"),
        (step(1, *SENT, before=None), 5e5, 5e5, f"{FOR_NOW} then it is removed; {FOR_GOOD}"),
        (step(1, *SENT, until_ms=None), 5e5, 8e5, f"{PENALTY}, with no end: what you set stays"),
        (step(1, *SENT, until_ms=None), 5e5, 5e5, None),
        (LIFTED, None, 8e5, f"{IS_LIFTED} does not put 1,000,000 back: what you set stays"),
        (LIFTED, None, None, f"{IS_LIFTED} puts 1,000,000 back"),
        (step(1, Event.SENDING), 5e5, 8e5, f"{FOR_NOW} what you set stays, 1,000,000 does not come back then"),
        ([*step(1, *SENT), *step(2, *SENT, before=5e5, after=4e5, until_ms=None)], 4e5, 8e5,
         f"{HAS_SET} 400,000 (penalty, plan p-2), with no end: what you set stays"),
        (step(1, *SENT), 7e5, 8e5, None),  # somebody has set it since
        (step(1), 1e6, 8e5, None),  # planned alone
        (step(1, Event.SENDING, Event.FAILED), 1e6, 8e5, None),
        (step(1, *SENT, Event.RESTORING, Event.RESTORED), 1e6, 8e5, None),
        (step(1, *SENT, entity=BOB), 5e5, 8e5, None),
    ],
)  # fmt: skip
def test_what_is_said(
    tmp_path: Path, log: list[LogEntry], has: float | None, to: float | None, said: str | None
) -> None:
    assert notes(tmp_path, log, has, to) == ([] if said is None else [said])


def test_what_should_have_ended_is_told(tmp_path: Path) -> None:
    [said] = notes(tmp_path, step(1, *SENT), 5e5, 8e5, UNTIL_MS)
    assert "until 2026-11-21 05:55:00 UTC (over: is kquota enforce run up?): what you set stays" in said


def test_other_keys_other_clusters_and_ips_are_not_held(tmp_path: Path) -> None:
    settings = Settings(tables=str(tmp_path))
    EnforcementLog(settings).append(step(1, *SENT))
    ip = IpEntity("10.0.0.1")
    held = held_steps(settings, [ALICE, ip])
    edits = [QuotaEdit(ALICE, OTHER, 5e5, 8e5), QuotaEdit(ip, IpQuotaKey.CONNECTION_CREATION_RATE, 5e5, 1.0)]
    assert len(held) == 1 and held_notes(held, edits, T0_MS) == []
    assert held_steps(Settings(tables=str(tmp_path), cluster_id="other"), [ALICE]) == {}


@pytest.mark.parametrize("name", ["timeout", "TIMEOUT"])
def test_a_store_that_does_not_answer_is_not_waited_for(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"aws_endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}", "allow_http": "true",
                   "aws_region": "x", "aws_access_key_id": "x", "aws_secret_access_key": "x", name: "60s"}  # fmt: skip
        began_s = time.monotonic()
        assert held_steps(Settings(tables="s3://b/x", storage_options=options), [ALICE]) == {}
    assert time.monotonic() - began_s < 60


@pytest.mark.parametrize("tables", ["nowhere", "a-file", "broken", "s3://127.0.0.1:1/x"])
def test_where_no_table_tells_nothing_is_said(tmp_path: Path, tables: str) -> None:
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    log = tmp_path / "broken" / "enforcement_log" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no json", encoding="utf-8")
    root = tables if "://" in tables else str(tmp_path / tables)
    options = {"aws_endpoint_url": "http://127.0.0.1:1", "allow_http": "true", "aws_region": "x",
               "aws_access_key_id": "x", "aws_secret_access_key": "x"}  # fmt: skip
    assert held_steps(Settings(tables=root, storage_options=options), [ALICE]) == {}
    assert held_steps(None, [ALICE]) == {}


@pytest.fixture
def penalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryCluster:
    """Alice has 600,000 instead of 1,000,000 until 07:42:01, by an override through all guards."""
    world = InMemoryCluster(tmp_path, monkeypatch, "approve")
    world.name_cluster()
    asked = ("--key", KEY.value, "--value", "600000", "--for", "2h", "--reason", "r", "--yes")
    assert run("override", "set", "--user", "alice", *asked, "--config", str(world.config))[0] == 0
    set_clock(monkeypatch, lambda: world.now_ms)
    return world


@pytest.fixture
def cluster(penalised: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryClusterQuotas]:
    found = InMemoryClusterQuotas({ALICE: {KEY: 6e5}})

    contexts = {
        name: Context(zookeeper="z:1", config=config)
        for name, config in (("with", str(penalised.config)), ("without", ""))
    }
    save_contexts(penalised.root / "contexts.yaml", Contexts(contexts=contexts))
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(penalised.root / "contexts.yaml"))
    monkeypatch.chdir(penalised.root)
    with opens(found):
        yield found


def plan_of(world: InMemoryCluster) -> str:
    out = run("override", "list", "--config", str(world.config), "--output", "json")[1]
    return str(json.loads(out)["rows"][0]["plan_id"])


def said_of(world: InMemoryCluster) -> str:
    return (
        f"users/alice producer_byte_rate: enforcement has set it to 600,000 (override, plan {plan_of(world)}) until "
        "2026-11-21 07:42:01 UTC: what you set stays, 1,000,000 does not come back then"
    )


ALTER = ("alter", "--user", "alice", "--add", "producer_byte_rate=700000", "--yes")


def test_alter_says_it_ahead_of_everything_else(
    penalised: InMemoryCluster, cluster: InMemoryClusterQuotas
) -> None:
    code, out, err = run(*ALTER, "--config", str(penalised.config))
    assert (code, err) == (0, "")
    assert " ".join(out.split()).startswith(f"{said_of(penalised)} entity key")
    assert cluster.quotas[ALICE] == {KEY: 7e5}


@pytest.mark.usefixtures("cluster")
def test_json_has_it_as_a_note(penalised: InMemoryCluster) -> None:
    out = run(*ALTER, "--config", str(penalised.config), "--output", "json")[1]
    assert json.loads(out)["notes"] == [said_of(penalised)]


def test_import_says_it_too_also_of_a_value_that_is_there_already(
    penalised: InMemoryCluster, cluster: InMemoryClusterQuotas, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("- {user: alice, type: producer_byte_rate, value: 600000}\n", encoding="utf-8")
    out = run("import", str(file), "--config", str(penalised.config), "--yes", "--output", "json")[1]
    [note] = json.loads(out)["notes"]
    assert (
        "until 2026-11-21 07:42:01 UTC: then 1,000,000 comes back; to set it for good run kquota enforce"
        in note
    )
    assert cluster.altered == []


def of_alice(context: str) -> tuple[str, ...]:
    return ("--kafka", context, "--user", "alice")


@pytest.mark.parametrize("words", [("create", *of_alice("with"), "--produce-rate", "700000"),
                                   ("delete", *of_alice("with"), "--produce-rate")])  # fmt: skip
def test_kfk_says_it_on_standard_error(
    penalised: InMemoryCluster, cluster: InMemoryClusterQuotas, words: tuple[str, ...]
) -> None:
    code, out, err = run("kfk", *words)
    removed = said_of(penalised).replace("what you set stays", "it stays removed")
    assert (code, out) == (0, "")
    assert err == f"kquota: note: {said_of(penalised) if words[0] == 'create' else removed}\n"
    assert len(cluster.altered) == 1


def test_a_context_without_settings_and_a_bare_cluster_know_no_tables(
    cluster: InMemoryClusterQuotas,
) -> None:
    for words in (
        ("kfk", "create", *of_alice("without"), "--produce-rate", "700000", "--output", "json"),
        (*ALTER, "--context", "without", "--output", "json"),
        (*ALTER, "--bootstrap-server", "b:1", "--output", "json"),
    ):
        cluster.quotas[ALICE] = {KEY: 6e5}
        code, out, err = run(*words)
        assert (code, json.loads(out)["notes"], err) == (0, [], "")


@pytest.mark.parametrize(
    ("quotas", "is_same"),
    [
        ("source: zookeeper, zookeeper_connect: 'y:1, z:1'", True),
        ("source: zookeeper, zookeeper_connect: 'y:1'", False),
        ("source: zookeeper, zookeeper_connect: 'z:1/kafka'", False),
        (
            "source: admin",
            False,
        ),  # the context names ZooKeeper alone: nothing shows that it is the same cluster
    ],
)
def test_a_context_takes_the_tables_of_the_directory_if_they_are_of_its_address(
    penalised: InMemoryCluster, cluster: InMemoryClusterQuotas, quotas: str, is_same: bool
) -> None:
    (penalised.root / "conf").mkdir()
    text = penalised.config.read_text(encoding="utf-8")
    text = text.replace("zookeeper_connect: 'zk1:2181'", quotas)
    (penalised.root / "conf" / "kquota.yaml").write_text(text, encoding="utf-8")
    out = run(*ALTER, "--context", "without", "--output", "json")[1]
    assert json.loads(out)["notes"] == ([said_of(penalised)] if is_same else [])
    assert cluster.quotas[ALICE] == {KEY: 7e5}


def test_a_broken_file_of_the_directory_does_not_stop_a_context(
    penalised: InMemoryCluster, cluster: InMemoryClusterQuotas
) -> None:
    (penalised.root / "conf").mkdir()
    (penalised.root / "conf" / "kquota.yaml").write_text("nonsense: [", encoding="utf-8")
    assert run(*ALTER, "--context", "without")[0] == 0
    assert cluster.quotas[ALICE] == {KEY: 7e5}


def test_what_is_promised_is_what_enforcement_does(penalised: InMemoryCluster) -> None:
    penalised.nodes["users/alice"]["producer_byte_rate"] = "700000"  # as alter would
    assert run("override", "expire", plan_of(penalised), "--yes", "--config", str(penalised.config))[0] == 0
    assert penalised.of_alice == "700000"
