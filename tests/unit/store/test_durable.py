"""After a power failure the tables on a local disk hold all that was committed, in whole files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.past.maintain import maintain
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.audit.violations.rebuild import rebuild_violations
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Maintain, Settings
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch, replace_rows
from kquota_spark.store.creation import create_tables
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.rules_tables import RulesTables
from kquota_spark.store.storage import delta_table
from tests.support.tables.sure_disk import SureDisk
from tests.support.tables.table_rows import DAY, T0_MS, decision, usage, write_table
from tests.support.tables.written_parts import written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SureDisk:
    return SureDisk(monkeypatch)


@pytest.fixture
def settings(disk: SureDisk, tmp_path: Path) -> Settings:
    made = Settings(
        cluster_id="demo",
        tables=str(tmp_path / "tables"),
        checkpoints=str(tmp_path / "checkpoints"),
        maintain=Maintain(retention={"decisions": Duration(400 * 86_400_000)}),
    )
    create_tables(made)
    return made


def _over(offset_s: int) -> dict[str, Any]:
    return decision(offset_s, rate_per_s=1.5e6, quota_used_percent=150.0, throttled_requests=2)


def _batch(settings: Settings, number: int = 0, *rows: dict[str, Any]) -> None:
    parts = written(settings, *(rows or (decision(0), decision(1))))
    BatchCommits(settings, DECISIONS).add(parts, MicroBatch("q", number))


def _several_batches(settings: Settings) -> None:
    commits = BatchCommits(settings, DECISIONS)
    for number in range(3):
        commits.add(written(settings, decision(number)), MicroBatch("q", number))


def _replaced(settings: Settings) -> None:
    _batch(settings)
    replace_rows(settings, DECISIONS, written(settings, decision(0, requests=7)), "broker_id = 1")


def _folded(settings: Settings) -> None:
    _batch(settings, 0, _over(0), _over(1))
    rows = delta_table(settings, "decisions").rows()
    judged = judged_rows(rows, settings.stream.episode_gap)
    EpisodeFold(settings).fold(judged, MicroBatch("q", 0), T0_MS)


def _rebuilt(settings: Settings) -> None:
    _batch(settings, 0, _over(0), _over(1))
    rebuild_violations(settings, T0_MS, T0_MS + 2_000)


def _watched(settings: Settings) -> None:
    tables = RulesTables(settings.tables, "demo", source="zookeeper", apply_lag_ms=0)
    edit = QuotaChange(Entity("alice", None), QuotaKey.PRODUCER_BYTE_RATE, 1e6, None, T0_MS, 1, None)
    tables.append([edit], (), T0_MS)
    tables.write_rules(T0_MS + 1_000)
    tables.write_known_through(T0_MS + 2_000)


def _maintained(settings: Settings) -> None:
    next_day = DAY + timedelta(days=1)
    write_table(Path(settings.tables), "usage", usage(86_400, event_date=next_day))
    _several_batches(settings)
    _batch(settings, 3, decision(86_400, event_date=next_day))
    compacted = [step for step in maintain(settings, T0_MS, is_dry_run=False) if step.action == "compact"]
    assert [(step.table, step.files) for step in compacted] == [("decisions", 3)]


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (_batch, ["decisions"]),
        (_several_batches, ["decisions"]),
        (_replaced, ["decisions"]),
        (_folded, ["decisions", "violations"]),
        (_rebuilt, ["decisions", "violations"]),
        (_watched, ["quota_changes", "quota_rules"]),
        (_maintained, ["decisions"]),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_what_was_committed_is_there_after_a_power_failure(
    disk: SureDisk, settings: Settings, tmp_path: Path, write: Callable[[Settings], None], names: list[str]
) -> None:
    write(settings)
    left = disk.left(Path(settings.tables), tmp_path / "left")
    for name in names:
        table = StoredTable.opened(str(left / name))
        assert table.version() == delta_table(settings, name).version() > 0
        assert _rows(table) == _rows(delta_table(settings, name)) != []


def _rows(table: StoredTable) -> list[str]:
    return sorted(map(str, table.rows().to_pylist()))


def test_a_file_is_on_the_disk_before_a_worker_reports_it(
    disk: SureDisk, settings: Settings, tmp_path: Path
) -> None:
    (part,) = written(settings, decision(0))
    left = disk.left(Path(settings.tables), tmp_path / "left")
    found = (left / "decisions" / part.path).read_bytes()
    assert found == (Path(settings.tables) / "decisions" / part.path).read_bytes()
    assert len(found) == part.size


def test_new_tables_are_there_after_a_power_failure(
    disk: SureDisk, settings: Settings, tmp_path: Path
) -> None:
    left = disk.left(Path(settings.tables), tmp_path / "left")
    names = sorted(path.name for path in Path(settings.tables).iterdir())
    assert [DeltaTable(str(left / name)).version() for name in names] == [0] * len(names)
    assert "decisions" in names
