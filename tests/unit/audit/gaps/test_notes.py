"""Notes beside the checkpoints: whole or not there, and a damaged one keeps no job from starting."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from kquota_spark.audit.gaps import lost_offsets
from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.audit.gaps.lost_offsets import Compared, note_compared
from kquota_spark.audit.queries import close_all_windows
from kquota_spark.checkpoints.lineage import Lineage, require_lineage, stored_lineage
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.gap_tables import EXPIRED_UNREAD
from kquota_spark.store.creation import create_tables
from tests.support.tables.recorded_gaps import stored
from tests.support.tables.table_rows import T0_MS, decision, request, usage, write_table

DAMAGED = ("", "{", "[]", '{"query_id": 1, "offsets": 3}', "\x00\x00\x00")
COMPARED, LINEAGE = "log.compared.json", "log.lineage.json"


@pytest.fixture(autouse=True)
def silent_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say what it still has: what is missing counts as expired."""
    monkeypatch.setattr(lost_offsets, "first_offsets", lambda _settings, _places: {})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        cluster_id="demo", tables=str(tmp_path / "tables"), checkpoints=str(tmp_path / "checkpoints"),
        kafka=Kafka(topic="log"),
    )  # fmt: skip
    create_tables(made)
    return made


def note(settings: Settings, name: str) -> Path:
    return Path(settings.checkpoints) / name


def ran(settings: Settings, ends: dict[str, int], *, batch: int) -> None:
    """A micro-batch, as its checkpoint notes it."""
    root = Path(settings.checkpoints) / "log"
    states = [root / "state" / operator / partition for operator in "01" for partition in "01"]
    for directory in (root / "offsets", root / "commits", *states):
        directory.mkdir(parents=True, exist_ok=True)
    for state in states:
        (state / "1.changelog").write_bytes(b"x")
    (root / "metadata").write_text('{"id":"one-query"}', encoding="utf-8")
    of_batch = {"batchTimestampMs": T0_MS, "conf": {"spark.sql.shuffle.partitions": "2"}}
    lines = ["v1", json.dumps(of_batch), json.dumps({"log": ends}), "{}"]
    (root / "offsets" / str(batch)).write_text("\n".join(lines), encoding="utf-8")
    (root / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_note_of_what_was_compared_is_made_anew(settings: Settings, text: str) -> None:
    record_gaps(settings)
    ran(settings, {"0": 0}, batch=0)
    ran(settings, {"0": 3}, batch=1)
    # Offset 1 was not read; nobody knows any more whether that was found.
    rows = [request(offset, T0_MS + offset, connection=f"c{offset}-0") for offset in (0, 2)]
    write_table(Path(settings.tables), "requests", *rows)
    note(settings, COMPARED).write_text(text, encoding="utf-8")
    record_gaps(settings)
    assert [row for row in stored(settings) if row[-1] == EXPIRED_UNREAD] == [(1, 0, 2, EXPIRED_UNREAD)]
    repaired = json.loads(note(settings, COMPARED).read_bytes())
    assert (repaired["query_id"], repaired["batch"]) == ("one-query", 1)
    # What had been found is not written twice.
    note(settings, COMPARED).write_text(text, encoding="utf-8")
    record_gaps(settings)
    assert len([row for row in stored(settings) if row[-1] == EXPIRED_UNREAD]) == 1


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_lineage_is_made_anew_of_what_the_tables_hold(settings: Settings, text: str) -> None:
    ran(settings, {"0": 12}, batch=0)
    root = Path(settings.tables)
    write_table(root, "requests", request(10, T0_MS), request(11, T0_MS + 3_000))
    write_table(root, "usage", usage(0), usage(3))
    write_table(root, "decisions", decision(0))
    note(settings, LINEAGE).write_text(text, encoding="utf-8")
    assert require_lineage(settings, ["log"], is_new=False) == []
    repaired = json.loads(note(settings, LINEAGE).read_bytes())
    assert stored_lineage(settings) == Lineage(
        offsets={"log": {"0": 10}},
        read_below={"log": {"0": 12}},
        measured_ms=T0_MS + 3_000,
        decided_ms={"1": T0_MS},
        tables=repaired["tables"],
        state_shards=64,
    )
    assert repaired["tables"] != ""


def test_a_lineage_that_cannot_be_read_is_not_made_anew(settings: Settings) -> None:
    ran(settings, {"0": 12}, batch=0)
    note(settings, LINEAGE).mkdir()
    with pytest.raises(UserError, match=r"log\.lineage\.json: cannot be read: "):
        require_lineage(settings, ["log"], is_new=False)


def no_space(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_note_that_cannot_be_written_leaves_the_old_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_compared(settings, Compared((), "one-query", 4))
    require_lineage(settings, ["log"], is_new=False)
    before = {name: note(settings, name).read_bytes() for name in (COMPARED, LINEAGE)}
    monkeypatch.setattr(os, "fsync", no_space)
    for write in (
        lambda: note_compared(settings, Compared((), "one-query", 5)),
        lambda: require_lineage(settings, ["log"], is_new=False),
    ):
        with pytest.raises(UserError, match=r"\.json: cannot be written: No space left on device: "):
            write()
    assert {name: note(settings, name).read_bytes() for name in before} == before
    assert sorted(path.name for path in Path(settings.checkpoints).iterdir()) == sorted(before)


def test_a_heartbeat_of_a_drain_is_there_as_a_whole_or_not_at_all(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(settings, {"0": 12}, batch=0)
    root = Path(settings.checkpoints) / "log"
    noted = json.dumps({"batchWatermarkMs": 30_000})
    (root / "offsets" / "0").write_text(
        f"v1\n{noted}\n{json.dumps({'log': {'0': 5}})}\n{{}}", encoding="utf-8"
    )
    left = json.dumps({"nextBatchWatermarkMs": 30_000})
    (root / "commits" / "0").write_text(f"v1\n{left}", encoding="utf-8")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(UserError, match="cannot be written: No space left on device"):
            close_all_windows(settings)
    folder = Path(settings.checkpoints) / "log.closing"
    assert list(folder.iterdir()) == []
    # What a crash in the middle leaves: Spark passes over hidden files, and so does the next drain.
    (folder / ".42000.json.123").write_bytes(b"{")
    close_all_windows(settings)
    # The newest line is at 30 s and the lateness of 5 s; later by that lateness and 2 s.
    (heartbeat,) = folder.glob("*.json")
    assert (heartbeat.name, heartbeat.read_bytes()) == ("42000.json", b'{"time_ms": 42000}')
