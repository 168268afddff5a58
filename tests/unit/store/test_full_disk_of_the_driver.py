"""A disk that is full or read-only under what the driver writes: one line, nothing damaged, and it goes on later."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.audit.gaps.lost_offsets import Compared, note_compared
from kquota_spark.audit.queries import close_all_windows
from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.checkpoints.driver_lock import driver_lock
from kquota_spark.checkpoints.lineage import require_lineage
from kquota_spark.cli.door import line_of
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Frozen
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.ship.state import ShipState, StateDirectory
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.parts import PartWriter
from kquota_spark.store.rules_tables import RulesTables
from tests.support.small_disk import small_disk
from tests.support.tables.recorded_gaps import settings_at
from tests.support.tables.table_rows import T0_MS, decision, heartbeat, request, write_table
from tests.unit.audit.gaps.test_notes import ran


@dataclass(frozen=True)
class Disk:
    """A file system of a few MiB, with the tables and the checkpoints on it."""

    place: Path
    settings: Settings

    def fill(self) -> None:
        """To the last byte, but for what is written to the end of a page that is there."""
        with (self.place / "ballast").open("wb", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        (self.place / "ballast").unlink()

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.place)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "small", 3 << 20) as place:
        settings = settings_at(place)
        root = Path(settings.tables)
        # A second of lines of which the gaps are not recorded, and a decision whose violation is not folded.
        write_table(root, "requests", request(0, T0_MS), {**heartbeat(1, T0_MS + 9), "kind": "gap"})
        write_table(root, "decisions", decision(0, quota_used_percent=300.0))
        quotas(settings)
        yield Disk(place, settings)


def lock(settings: Settings) -> None:
    with driver_lock(settings.checkpoints, "log"):
        pass


def lineage(settings: Settings) -> None:
    require_lineage(settings, ["jmx"], is_new=False)


def compared(settings: Settings) -> None:
    note_compared(settings, Compared((), "q", 1))


def drain(settings: Settings) -> None:
    ran(settings, {"0": 1}, batch=0)
    commits = Path(settings.checkpoints) / "log" / "commits" / "0"
    commits.write_text('v1\n{"nextBatchWatermarkMs": 1000}', encoding="utf-8")
    close_all_windows(settings)


def quotas(settings: Settings) -> None:
    RulesTables(settings.tables, "demo", source="zookeeper", apply_lag_ms=0).write_rules(T0_MS)


def micro_batch(settings: Settings) -> None:
    writer = PartWriter(settings, DECISIONS)
    row = {name: decision(5).get(name) for name in DECISIONS.names}
    writer.write(pa.RecordBatch.from_pylist([row], schema=DECISIONS.arrow_schema()))
    BatchCommits(settings, DECISIONS).add([*writer.close()], MicroBatch("q", 1))


def freeze(settings: Settings) -> None:
    FreezeSwitch(settings).freeze(Frozen(1, "ann", "test"))


def shipped(settings: Settings) -> None:
    StateDirectory(Path(settings.checkpoints).parent / "ship").write(1, ShipState(lines=7))


WRITERS: tuple[Callable[[Settings], object], ...] = (
    lock, record_gaps, lineage, compared, drain, quotas, micro_batch, rebuild_all_violations, freeze, shipped,
)  # fmt: skip


def rows(settings: Settings) -> int:
    """Of all tables, read by another reader."""
    return sum(
        DeltaTable(table).to_pyarrow_table().num_rows
        for table in Path(settings.tables).iterdir()
        if any(table.glob("_delta_log/*.json"))
    )


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_full_disk_is_a_line_and_no_damage(disk: Disk, write: Callable[[Settings], object]) -> None:
    before = rows(disk.settings)
    disk.fill()
    with pytest.raises(Exception) as caught:
        write(disk.settings)
    line = line_of(caught.value)
    assert line is not None, caught.value
    assert "\n" not in line
    assert "No space left on device" in line
    assert rows(disk.settings) == before
    disk.free()
    write(disk.settings)
    assert rows(disk.settings) >= before


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_read_only_disk_is_a_line_and_no_damage(disk: Disk, write: Callable[[Settings], object]) -> None:
    before = rows(disk.settings)
    disk.remount("ro")
    with pytest.raises(Exception) as caught:
        write(disk.settings)
    line = line_of(caught.value)
    assert line is not None, caught.value
    assert "\n" not in line
    assert "Read-only file system" in line
    disk.remount("rw")
    write(disk.settings)
    assert rows(disk.settings) >= before


def test_the_lock_of_a_folder_that_may_not_be_used_names_it(disk: Disk) -> None:
    disk.remount("ro")
    settings = replace(disk.settings, checkpoints=str(disk.place / "new"))
    with pytest.raises(Exception, match="Read-only file system") as caught:
        lock(settings)
    assert line_of(caught.value) == f"checkpoints {disk.place}/new: cannot be locked: Read-only file system"
