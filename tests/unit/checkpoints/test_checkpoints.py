"""Checkpoints that are half copied, of another query or of other tables are refused in a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.audit.queries import close_all_windows
from kquota_spark.checkpoints.checkpoints import require_whole
from kquota_spark.checkpoints.lineage import Lineage, require_lineage, stored_lineage
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.store.creation import create_tables
from tests.support.tables.table_rows import DAY, T0_MS, decision, request, usage, write_table

CONF = {"conf": {"spark.sql.shuffle.partitions": "2"}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        cluster_id="demo", tables=str(tmp_path / "tables"), checkpoints=str(tmp_path / "checkpoints"),
        kafka=Kafka(topic="log", jmx_topic="jmx"),
    )  # fmt: skip
    create_tables(made)
    return made


READ = {"log": {"0": 5}}


def _write(settings: Settings, query: str = "log", offset: dict[str, Any] = READ, batches: int = 2) -> Path:
    """A checkpoint as Spark leaves it after so many micro-batches."""
    root = Path(settings.checkpoints) / query
    states = [root / "state" / operator / partition for operator in "01" for partition in "01"]
    for directory in (root / "offsets", root / "commits", *states):
        directory.mkdir(parents=True)
    (root / "metadata").write_text('{"id":"1"}', encoding="utf-8")
    for batch in range(batches):
        text = f"v1\n{json.dumps(CONF)}\n{json.dumps(offset)}\n{{}}"
        (root / "offsets" / str(batch)).write_text(text, encoding="utf-8")
        (root / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")
    for state in states:
        (state / "1.changelog").write_bytes(b"x")
    return root


def test_the_first_start_of_a_second_cluster_in_the_same_tables_is_no_lost_checkpoint(
    settings: Settings, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    write_table(tables, "requests", request(0))
    write_table(
        tables, "jmx_samples", {"cluster_id": "demo", "event_date": DAY, "topic": "jmx", "kafka_offset": 1}
    )
    for make, name in ((usage, "usage"), (decision, "decisions")):
        write_table(tables, name, make(0), make(0, source="jmx"))
    second = settings.changed(cluster_id="second", checkpoints=str(tmp_path / "second"))
    assert require_lineage(second, ["log", "jmx"], is_new=False) == []
    assert stored_lineage(second).offsets == stored_lineage(second, "jmx").offsets == {}
    for query, filled in (("log", "requests"), ("jmx", "jmx_samples")):
        with pytest.raises(
            UserError, match=f"^checkpoint .*/{query} is missing, but table {filled} has rows"
        ):
            require_lineage(settings, [query], is_new=False)


@pytest.mark.parametrize("is_planned", [False, True])
def test_the_last_seconds_are_closed_after_the_newest_line_whatever_was_planned(
    settings: Settings, is_planned: bool
) -> None:
    """A job that is killed after its last lines has planned no batch that would have noted their watermark."""
    root = _write(settings, batches=3)
    lateness_ms = settings.stream.allowed_lateness
    # Each batch moved the watermark by 10 s; the newest line is at 30 s and the lateness.
    for batch, (own_ms, next_ms) in enumerate([(0, 10_000), (10_000, 20_000), (20_000, 30_000)]):
        own, left = json.dumps({"batchWatermarkMs": own_ms}), json.dumps({"nextBatchWatermarkMs": next_ms})
        (root / "offsets" / str(batch)).write_text(f"v1\n{own}\n{json.dumps(READ)}\n{{}}", encoding="utf-8")
        (root / "commits" / str(batch)).write_text(f"v1\n{left}", encoding="utf-8")
    if is_planned:
        own, left = json.dumps({"batchWatermarkMs": 30_000}), json.dumps({"nextBatchWatermarkMs": 30_000})
        (root / "offsets" / "3").write_text(f"v1\n{own}\n{json.dumps(READ)}\n{{}}", encoding="utf-8")
        (root / "commits" / "3").write_text(f"v1\n{left}", encoding="utf-8")
    close_all_windows(settings)
    [heartbeat] = (Path(settings.checkpoints) / "log.closing").glob("*.json")
    # Later than that line by the lateness, and 2 s more.
    assert int(heartbeat.stem) == 30_000 + 2 * lateness_ms + 2_000


def test_a_whole_checkpoint_of_each_query_is_taken(settings: Settings) -> None:
    assert not require_whole(settings, "log")
    _write(settings)
    _write(settings, "jmx", {"jmx": {"0": 5}})
    assert require_whole(settings, "log")
    assert require_whole(settings, "jmx")


def test_a_crash_between_begin_and_end_of_a_batch_is_whole(settings: Settings) -> None:
    root = _write(settings)
    (root / "commits" / "1").unlink()
    assert require_whole(settings, "log")


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda root: (root / "metadata").unlink(),
        "its file metadata is missing, so it was not copied as a whole",
    ),
    (lambda root: (root / "offsets" / "1").unlink(), "its file offsets/1 is missing, so it was not copied"),
    (
        lambda root: (root / "offsets" / "4").write_text("v1"),
        "its file commits/3 is missing, so it was not copied",
    ),
    (
        lambda root: (root / "offsets" / "1").write_text("v1\n{}"),
        "its file offsets/1 cannot be read (it is cut off)",
    ),
    (
        lambda root: (root / "offsets" / "1").write_text('v1\n{}\n{"reserv'),
        "its file offsets/1 cannot be read",
    ),
    (lambda root: shutil.rmtree(root / "state"), "its folder state is missing or not whole"),
    (lambda root: shutil.rmtree(root / "state/0/1"), "its folder state is missing or not whole"),
    (lambda root: shutil.rmtree(root / "state/1/0"), "its folder state is missing or not whole"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES, ids=range(len(DAMAGES)))
def test_half_a_copy_is_refused(settings: Settings, damage: Callable[[Path], object], problem: str) -> None:
    damage(_write(settings))
    with pytest.raises(UserError) as raised:
        require_whole(settings, "log")
    assert f"checkpoints/log: {problem}" in str(raised.value)
    assert str(raised.value).endswith("restore it, or move it away and start with --new-lineage")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "topic", "said"), [("log", "other", "log"), ("log", "jmx", "log"), ("jmx", "log", "jmx")]
)
def test_a_checkpoint_of_another_topic_or_query_is_refused(
    settings: Settings, query: str, topic: str, said: str
) -> None:
    _write(settings, query, {topic: {"0": 5}})
    with pytest.raises(UserError, match=f"it reads topic {topic}, and the settings say {said}"):
        require_whole(settings, query)


@pytest.mark.parametrize("operator", ["0", "1"])
def test_a_checkpoint_that_was_moved_is_refused(settings: Settings, operator: str) -> None:
    root = _write(settings)
    schema = root / "state" / operator / "_stateSchema" / "default" / "0_1"
    noted = root / "state" / operator / "_metadata" / "v2" / "0"
    for file, text in ((schema, ""), (noted, f'v2\n{{"stateSchemaFilePaths":["file:{schema}"]}}')):
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    assert require_whole(settings, "log")
    moved = root.rename(root.with_name("elsewhere"))
    shutil.copytree(moved, root)
    shutil.rmtree(moved)
    assert require_whole(settings, "log")  # a copy that is back in its place
    noted.write_text(noted.read_text("utf-8").replace("checkpoints", "before"), encoding="utf-8")
    with pytest.raises(UserError, match=r"it was made at .*/before/log and cannot be used elsewhere"):
        require_whole(settings, "log")


@pytest.mark.parametrize("query", ["log", "jmx"])
def test_tables_made_anew_are_other_tables(settings: Settings, query: str) -> None:
    assert require_lineage(settings, [query], is_new=False) == []  # the first start
    _write(settings, query, {query: {"0": 5}})
    assert require_lineage(settings, [query], is_new=False) == []
    shutil.rmtree(settings.tables)
    create_tables(settings)
    with pytest.raises(UserError, match=f"checkpoints/{query}: it belongs to other tables than"):
        require_lineage(settings, [query], is_new=False)


def test_a_state_of_another_form_is_refused(settings: Settings) -> None:
    _write(settings)
    (Path(settings.checkpoints) / "log.lineage.json").write_text('{"state_form": 5}', encoding="utf-8")
    with pytest.raises(
        UserError, match=r"/log: another release wrote its state \(form 5, this one reads 10\): move"
    ):
        require_lineage(settings, ["log"], is_new=False)


def test_another_number_of_shards_than_the_checkpoint_has_is_refused(settings: Settings) -> None:
    assert require_lineage(settings, ["log", "jmx"], is_new=False) == []
    _write(settings)
    _write(settings, "jmx", {"jmx": {"0": 5}})
    sharded = settings.changed(stream=settings.stream.changed(state_shards=8))
    with pytest.raises(
        UserError,
        match=r"/log: its state has 64 shards, but stream\.state_shards is 8: set the old number, or move it away",
    ):
        require_lineage(sharded, ["log"], is_new=False)
    note = Path(settings.checkpoints) / "log.lineage.json"
    text = note.read_text(encoding="utf-8")
    note.unlink()
    with pytest.raises(
        UserError, match=r"the note .*/log\.lineage\.json with the number of its shards is missing"
    ):
        require_lineage(settings, ["log"], is_new=False)
    note.write_text(text, encoding="utf-8")
    # The query of JMX has no state; with the old number that of the log goes on.
    assert require_lineage(sharded, ["jmx"], is_new=False) == []
    assert require_lineage(settings, ["log", "jmx"], is_new=False) == []


def test_a_lost_checkpoint_is_refused_unless_a_new_lineage_is_asked_for(settings: Settings) -> None:
    assert require_lineage(settings, ["log"], is_new=False) == []  # the first start
    root = Path(settings.tables)
    hour_ms = 3_600_000
    # usage reaches hour 2, so the topic is read again from hour 1 on.
    write_table(root, "usage", usage(7_200))
    write_table(root, "decisions", decision(7_200), decision(7_100, broker_id=2))
    write_table(root, "requests", *(request(offset, T0_MS + offset * hour_ms // 4) for offset in (3, 5)))
    write_table(root, "requests", request(4, T0_MS, partition=2))
    write_table(root, "requests", request(99, topic="other"), request(98, cluster_id="other"))
    with pytest.raises(UserError, match=r"^checkpoint .*/log is missing, but table requests has rows"):
        require_lineage(settings, ["log"], is_new=False)
    assert require_lineage(settings, ["log"], is_new=True) == ["log"]
    assert stored_lineage(settings) == Lineage(
        # Offset 5 is of 75 minutes after T0; partition 2 has nothing so new.
        offsets={"log": {"0": 5, "2": 5}},
        read_below={"log": {"0": 6, "2": 5}},
        measured_ms=T0_MS + 2 * hour_ms,
        decided_ms={"1": T0_MS + 2 * hour_ms, "2": T0_MS + 7_100_000},
        tables=stored_lineage(settings).tables,
        state_shards=64,
    )


def test_the_query_of_jmx_goes_on_behind_the_newest_offsets(settings: Settings) -> None:
    place = {"cluster_id": "demo", "event_date": DAY, "kind": "other", "topic": "jmx"}
    rows = [
        {**place, "partition": partition, "kafka_offset": offset}
        for partition, offset in ((0, 7), (0, 9), (1, 3))
    ]
    write_table(Path(settings.tables), "jmx_samples", *rows, {**place, "topic": "other", "kafka_offset": 99})
    with pytest.raises(UserError, match=r"^checkpoint .*/jmx is missing, but table jmx_samples has rows"):
        require_lineage(settings, ["jmx"], is_new=False)
    assert require_lineage(settings, ["jmx"], is_new=True) == ["jmx"]
    assert stored_lineage(settings, "jmx").offsets == {"jmx": {"0": 10, "1": 4}}


def test_nothing_is_left_out_of_tables_that_were_made_anew(settings: Settings) -> None:
    write_table(Path(settings.tables), "usage", usage())
    require_lineage(settings, ["log"], is_new=True)
    assert stored_lineage(settings).measured_ms == T0_MS
    shutil.rmtree(settings.tables)
    create_tables(settings)
    require_lineage(settings, ["log"], is_new=False)
    assert stored_lineage(settings) == Lineage(tables=stored_lineage(settings).tables, state_shards=64)


def test_a_lineage_leaves_out_what_the_tables_have() -> None:
    lineage = Lineage({}, {"log": {"0": 6}}, T0_MS, {"1": T0_MS})
    lines = pa.RecordBatch.from_pylist(
        [
            {"topic": topic, "partition": partition, "kafka_offset": offset}
            for topic, partition, offset in (("log", 0, 5), ("log", 0, 6), ("log", 1, 5), ("new", 0, 0))
        ]
    )
    found = lineage.only_unread(lines).to_pylist()
    assert [tuple(row.values()) for row in found] == [("log", 0, 6), ("log", 1, 5), ("new", 0, 0)]
    in_us = pa.array([(T0_MS + at_ms) * 1_000 for at_ms in (-1_000, 0, 1_000)], pa.timestamp("us", tz="UTC"))
    rows = pa.RecordBatch.from_pydict({"second": in_us, "broker_id": pa.array([2, 1, 1], pa.int32())})
    assert lineage.only_unmeasured(rows)["second"].to_pylist() == in_us[2:].to_pylist()
    assert lineage.only_undecided(rows)["broker_id"].to_pylist() == [2, 1]  # of broker 2 there is nothing
