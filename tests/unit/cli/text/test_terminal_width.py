"""Every reading command fits the terminal, on a real pseudo-terminal, and cuts no two rows to the same text."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.cli.text.render import Layout
from kquota_spark.enforce.changes import Quota, StepId
from kquota_spark.enforce.in_memory import InMemoryLedger
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.clock import set_clock
from tests.support.enforcement.lifted_cluster import Cluster
from tests.support.logs.captures import Capture
from tests.support.places import DATA
from tests.support.programs.terminal_output import on_terminal, written_to_terminal
from tests.support.quotas.in_memory_cluster_quotas import InMemoryClusterQuotas
from tests.support.quotas.opened_clusters import opens
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.long_names import CLIENT_IDS, DN, NAMES, quotas_file, write_long_names
from tests.support.tables.report_tables import MADE_AT_MS

WIDTHS = (80, 100, 200)
_NO_STROKES = dict.fromkeys(map(ord, "│├└─"), " ")
UNCUT = 2_000
"""Columns that every name and every figure has room in."""
ALL = "--limit 0"
CAPTURE = f"replay {DATA}/kraft39/broker-1.kafka-request.log.gz --quotas {DATA}/kraft39/quotas.yaml"
COMMANDS = (
    f"violations {ALL}",
    "decisions --since 2026-11-21T05:49:50Z",
    f"usage {ALL}",
    "usage --by-second --since 2026-11-21T05:49:50Z",
    "timeline --user DN --client-id ID",
    "timeline --user alice",
    "tables",
    "tables decisions",
    "resolve --user DN --client-id ID",
    "resolve --user DN --client-id ID --walk",
    "explain --user DN --client-id ID",
    f"tree {ALL}",
    f"describe {ALL}",
    f"diff before.yaml after.yaml {ALL}",
    f"drift after.yaml --tables . --at 2026-11-21T05:49:59Z {ALL}",
    "agreement",
    f"agreement --by bucket {ALL}",
    "agreement --by type",
    "agreement --by day",
    "findings",
    "findings --evidence",
    "doctor",
    "report --period 2026-11-21T05:40:00Z..2026-11-21T05:50:00Z",
    "help",
    "help reading",
    "context list",
    "exempt list",
    "lift --list",
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("long")
    write_long_names(root)
    quotas_file(root / "before.yaml", 10_000)
    quotas_file(root / "after.yaml", 2_000_000)
    exempt = ", ".join(f'"{name}"' for name in NAMES)
    (root / "conf").mkdir()
    (root / "conf" / "policy.yaml").write_text(f"exempt:\n  users: [{exempt}]\n", encoding="utf-8")
    (root / "kquota.yaml").write_text("tables: .\ncluster_id: demo\n", encoding="utf-8")
    return root


@pytest.fixture
def shown_rows(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The rows of each table that is drawn, as they are."""
    tables: list[list[str]] = []
    drawn = Layout.rows

    def rows(self: Layout) -> Iterator[list[str]]:
        found = list(drawn(self))
        # Strokes of a tree tell no two names apart.
        tables.append(["\n".join(lines).translate(_NO_STROKES) for lines in found])
        return iter(found)

    monkeypatch.setattr(Layout, "rows", rows)
    return tables


@pytest.fixture(scope="module")
def uncut() -> dict[str, list[int]]:
    """How many rows of each table differ where nothing is cut, by command: one run serves all widths."""
    return {}


@pytest.fixture(autouse=True)
def in_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the tables, a minute after their newest second, with a cluster in memory."""

    names: QuotaSet = {
        Entity(user, client_id): {QuotaKey.PRODUCER_BYTE_RATE: 1_048_576.5}
        for user in NAMES
        for client_id in CLIENT_IDS
    }
    monkeypatch.chdir(root)
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setattr("kquota_spark.enforcement.edges.log.EnforcementLog", lambda _: _lifted())
    set_clock(monkeypatch, lambda: MADE_AT_MS)
    with opens(InMemoryClusterQuotas(names)):
        yield


def arguments(command: str) -> list[str]:
    """The words of a command, with the names and the configuration that it stands for."""
    words = [{"DN": DN, "ID": CLIENT_IDS[0]}.get(word, word) for word in command.split()]
    has_tables = words[0] not in ("tables", "describe", "help", "context", "replay")
    if words[0] == "describe":
        words += ["--bootstrap-server", "broker1:9092"]
    return [*words, *(["--config", "kquota.yaml"] if has_tables else [])]


def _lifted() -> InMemoryLedger:
    """The log of an enforcement that has lifted the quota of each name."""
    quotas = [Quota(Entity(name), QuotaKey.PRODUCER_BYTE_RATE) for name in NAMES]
    cluster = Cluster(nodes={str(quota.entity): {quota.key.value: "1048576"} for quota in quotas})
    cluster.lifter().lift(
        quotas, StepId("lift-1", 1), "a load test of the whole bank over the weekend", MADE_AT_MS
    )
    return cluster.ledger


def fits(monkeypatch: pytest.MonkeyPatch, columns: int, words: list[str]) -> None:
    seen = on_terminal(monkeypatch, columns, *words)
    assert seen.code in (0, 2) and seen.rows
    # A terminal has a row for each line only if none is wider than it is.
    assert len(seen.rows) == seen.lines


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_row_is_wrapped_and_no_two_become_equal(
    command: str,
    columns: int,
    uncut: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    shown_rows: list[list[str]],
) -> None:
    if command not in uncut:
        written_to_terminal(monkeypatch, UNCUT, *arguments(command))
        uncut[command] = [len(set(rows)) for rows in shown_rows]
        shown_rows.clear()
    fits(monkeypatch, columns, arguments(command))
    assert [len(set(rows)) for rows in shown_rows] == uncut[command]


def test_an_old_terminal_gets_strokes_and_cuts_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    received = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(received, encoding="ascii"))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments("tree --limit 12")) == 0
    sys.stdout.flush()
    lines = received.getvalue().decode().splitlines()
    assert max(map(len, lines)) <= 80
    # Below each of the names its two client ids, which differ in the middle only.
    assert [line[:30] for line in lines if line.startswith("|- CN=bob~")] == ["|- CN=bob~"]
    at = lines.index("|- CN=bob~")
    assert [line[:27] for line in lines[at + 1 : at + 3]] == [
        "|  |- cli~reader-eu-0-01234", "|  `- cli~writer-eu-0-01234",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def capture_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kraft39")
    write_capture(root, Capture("kraft39", RateConfig()))
    return root


@pytest.mark.parametrize("columns", WIDTHS)
def test_what_another_quota_would_have_done_fits_with_its_chart(
    columns: int, capture_root: Path, monkeypatch: pytest.MonkeyPatch, shown_rows: list[list[str]]
) -> None:
    words = [
        "whatif",
        "--add",
        "user=bob,producer_byte_rate=2000",
        "--limit",
        "0",
        "--tables",
        str(capture_root),
    ]
    fits(monkeypatch, columns, words)
    [rows] = shown_rows
    assert len(set(rows)) == len(rows) > 20


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("form", ["--by bucket", "--by request --limit 200", "--compare-window 30x1"])
def test_a_replay_fits(form: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fits(monkeypatch, columns, arguments(f"{CAPTURE} {form}"))
