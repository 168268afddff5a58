"""The log of enforcement holds every row exactly, in one order, whoever writes at the same time."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforce.ports import Ledger
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.schema.columns import VERSION_PROPERTY
from kquota_spark.store.reading import query
from tests.support.enforcement.enforcement_ports_contract import LEDGER_CLAIMS
from tests.support.places import ROOT
from tests.support.programs.s3_server import s3_server

AT_MS = 1_795_310_832_702
DAY_MS = 86_400_000


def entry(step: int, plan_id: str = "p-1", **changed: object) -> LogEntry:
    """One row; steps share a proposal in groups of four, as the events of a real step do."""
    evidence = Evidence(AT_MS, AT_MS + 60_000, 60, 59, step // 4, {"peak_rate_per_s": 1.5e6})
    quota = Quota(Entity("alice", f"etl-{step // 4}"), QuotaKey.PRODUCER_BYTE_RATE)
    proposal = Proposal(quota, 5e6, 4e6, "penalty", "three violations", AT_MS + DAY_MS, evidence)
    row = LogEntry(StepId(plan_id, step), Event.PLANNED, AT_MS, proposal, Mode.ENFORCE, "enforcer")
    return dataclasses.replace(row, **changed)  # type: ignore[arg-type]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cluster_id="prod", tables=str(tmp_path / "tables"))


@pytest.mark.parametrize("claim", LEDGER_CLAIMS)
def test_the_contract(claim: Callable[[Callable[[], Ledger]], None], settings: Settings) -> None:
    claim(lambda: EnforcementLog(settings))


def odd_rows() -> list[LogEntry]:
    numbers = {"rate": math.inf, "low": -math.inf, "none": math.nan, "third": 1 / 3, "text '\"\n": 5.0}
    evidence = Evidence(0, -1, 0, 0, 2**62, numbers)
    rows = []
    for index, (before, after) in enumerate(
        [(None, math.inf), (math.nan, None), (-0.0, 5e-324), (2.0**63, 0.1)]
    ):
        entity = [Entity(DEFAULT), Entity(None, "<default>"), Entity("ü, '\n", DEFAULT), Entity("", "")][
            index
        ]
        quota = Quota(entity, list(QuotaKey)[index])
        proposal = Proposal(quota, before, after, "p'\"\n", "", None, evidence, "twice", is_penalty=True)
        step = StepId("", index)
        rows.append(LogEntry(step, list(Event)[index], -1, proposal, Mode(index), "", None, None, None, "\n"))
        rows.append(LogEntry(step, Event.RESTORED, 0, proposal, Mode.OBSERVE, "ü", "", 2**62, "", "d"))
    return rows


def test_every_value_comes_back_as_it_was(settings: Settings) -> None:
    rows = odd_rows()
    EnforcementLog(settings).append(rows)
    # repr, because a NaN is not equal to itself, and -0.0 equals 0.0
    assert repr(EnforcementLog(settings).entries()) == repr(rows)


def test_a_log_of_before_approvers_and_tickets_is_read_and_extended(settings: Settings) -> None:
    log = EnforcementLog(settings)
    log.append([entry(1)])
    path = f"{settings.tables}/enforcement_log"
    old = DeltaTable(path).to_pyarrow_table().drop_columns(["author", "approver", "ticket"])
    shutil.rmtree(path)
    last = CommitProperties(app_transactions=[Transaction("enforcement_log/prod", 1)])
    write_deltalake(path, old, partition_by=["event_date"], commit_properties=last)
    DeltaTable(path).alter.set_table_properties({VERSION_PROPERTY: "2"}, raise_if_not_exists=False)
    assert EnforcementLog(settings).entries() == [entry(1)]
    named = entry(2, author="ann", approver="bob", ticket="CHG-7")
    EnforcementLog(settings).append([named])
    assert EnforcementLog(settings).entries() == [entry(1), named]


def test_clusters_have_logs_of_their_own(settings: Settings) -> None:
    other = dataclasses.replace(settings, cluster_id="test")
    EnforcementLog(settings).append([entry(1), entry(2)])
    EnforcementLog(other).append([entry(3)])
    EnforcementLog(settings).append([entry(4)])
    assert EnforcementLog(settings).entries() == [entry(1), entry(2), entry(4)]
    assert EnforcementLog(other).entries() == [entry(3)]


WRITER = """
import sys
from kquota_spark.config.settings import Settings
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.store.reading import query
from tests.unit.enforce.test_enforcement_log import entry
log = EnforcementLog(Settings(cluster_id="prod", tables=sys.argv[1]))
for batch in range(10):
    log.append([entry(2 * batch, sys.argv[2]), entry(2 * batch + 1, sys.argv[2])])
"""


def test_two_processes_write_at_the_same_time(settings: Settings) -> None:
    programs = [[sys.executable, "-c", WRITER, settings.tables, plan_id] for plan_id in ("p-a", "p-b")]
    writers = [subprocess.Popen(program, cwd=ROOT) for program in programs]
    assert [writer.wait(timeout=240) for writer in writers] == [0, 0]
    rows = EnforcementLog(settings).entries()
    for plan_id in ("p-a", "p-b"):
        assert [row.step_id.step for row in rows if row.step_id.plan_id == plan_id] == list(range(20))
    numbers = query(settings, ["enforcement_log"], "select sequence from enforcement_log order by 1").rows
    assert numbers == [(number,) for number in range(1, 41)], "no number twice"
    pairs = [(row.step_id.plan_id, row.step_id.step // 2) for row in rows]
    assert pairs[::2] == pairs[1::2], "rows of one append stay together"


def test_many_appends_become_few_files_and_lose_nothing(settings: Settings) -> None:
    log = EnforcementLog(settings)
    for step in range(60):
        log.append([entry(step)])
    assert log.entries() == [entry(step) for step in range(60)]
    # The 51st append makes one file of 51; nine follow.
    assert len(DeltaTable(f"{settings.tables}/enforcement_log").file_uris()) == 10


def test_ten_thousand_rows_are_read_at_once(settings: Settings) -> None:
    log = EnforcementLog(settings)
    for day in range(10):
        at_ms = AT_MS + day * DAY_MS
        for batch in range(4):
            steps = range(day * 1_000 + batch * 250, day * 1_000 + batch * 250 + 250)
            log.append([entry(step, at_ms=at_ms) for step in steps])
    took_s, plain_s = [], []
    for _ in range(5):
        # Of the processor, because a busy machine makes everybody wait; and both in turn, whatever the machine.
        begin_s = time.process_time()
        found = log.entries()
        took_s.append(time.process_time() - begin_s)
        begin_s = time.process_time()
        rows = DeltaTable(f"{settings.tables}/enforcement_log").to_pyarrow_table().to_pylist()
        plain_s.append(time.process_time() - begin_s)
    print(f"10,000 rows in 40 files: {min(took_s):.3f} s; as dictionaries {min(plain_s):.3f} s")
    assert [row.step_id.step for row in found] == list(range(10_000))
    assert len(rows) == 10_000
    assert min(took_s) < 4 * min(plain_s)


def test_a_log_on_s3(tmp_path: Path) -> None:
    with s3_server() as endpoint:
        config = tmp_path / "kquota.yaml"
        config.write_text(
            "tables: s3a://lake/kquota/tables\n"
            f"storage_options: {{AWS_ENDPOINT_URL: '{endpoint}', AWS_REGION: us-east-1, AWS_ALLOW_HTTP: 'true',\n"
            "  AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: secret}\n"
        )
        settings = load_settings(config)
        EnforcementLog(settings).append([entry(1), entry(2)])
        EnforcementLog(settings).append([entry(3)])
        assert EnforcementLog(settings).entries() == [entry(1), entry(2), entry(3)]


def test_a_table_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("a file")
    log = EnforcementLog(Settings(tables=str(tmp_path / "tables")))
    with pytest.raises(UserError, match="table enforcement_log cannot be created"):
        log.append([entry(1)])
