"""Checkpoints that are half copied, of another query or of other tables are refused in a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.lineage import Lineage, require_lineage, stored_lineage
from kquota_spark.io.whole_checkpoint import require_whole
from tests.support.tables.table_rows import T0_MS, request, usage, write_table

CONF = {"conf": {"spark.sql.shuffle.partitions": "2"}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        cluster_id="demo", tables=str(tmp_path / "tables"), checkpoints=str(tmp_path / "checkpoints"),
        kafka=Kafka(topic="log"),
    )  # fmt: skip
    create_tables(made)
    return made


def _write(settings: Settings, hop: str, offset: dict[str, Any], batches: int = 2) -> Path:
    """A checkpoint as Spark leaves it after so many micro-batches."""
    root = Path(settings.checkpoints) / hop
    for directory in ("offsets", "commits", "state/0/0", "state/0/1"):
        (root / directory).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"1"}', encoding="utf-8")
    for batch in range(batches):
        text = f"v1\n{json.dumps(CONF)}\n{json.dumps(offset)}"
        (root / "offsets" / str(batch)).write_text(text, encoding="utf-8")
        (root / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")
    for partition in "01":
        (root / "state" / "0" / partition / "1.changelog").write_bytes(b"x")
    return root


def _reads(settings: Settings, table: str) -> dict[str, Any]:
    found = DeltaTable(f"{settings.tables}/{table}")
    return {"sourceVersion": 1, "reservoirId": str(found.metadata().id), "reservoirVersion": 1, "index": -1}


def test_a_whole_checkpoint_of_each_query_is_taken(settings: Settings) -> None:
    assert not require_whole(settings, "ingest")
    _write(settings, "ingest", {"log": {"0": 5}})
    for hop, table in (("measure", "requests"), ("judge", "usage")):
        _write(settings, hop, _reads(settings, table))
    assert all(require_whole(settings, hop) for hop in ("ingest", "measure", "judge"))


def test_a_crash_between_begin_and_end_of_a_batch_is_whole(settings: Settings) -> None:
    root = _write(settings, "judge", _reads(settings, "usage"))
    (root / "commits" / "1").unlink()
    assert require_whole(settings, "judge")


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
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES, ids=range(len(DAMAGES)))
def test_half_a_copy_is_refused(settings: Settings, damage: Callable[[Path], object], problem: str) -> None:
    damage(_write(settings, "judge", _reads(settings, "usage")))
    with pytest.raises(UserError) as raised:
        require_whole(settings, "judge")
    assert f"checkpoints/judge: {problem}" in str(raised.value)
    assert str(raised.value).endswith("restore it, or move it away and start with --new-lineage")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("hop", "source", "problem"),
    [
        ("judge", "decisions", "it belongs to another query or to other tables: it does not read"),
        ("ingest", "decisions", "it belongs to another query"),
        ("measure", "", "it belongs to another query or to other tables"),
    ],
)
def test_swapped_folders_are_refused(settings: Settings, hop: str, source: str, problem: str) -> None:
    _write(settings, hop, _reads(settings, source) if source else {"log": {"0": 5}})
    with pytest.raises(UserError, match=problem):
        require_whole(settings, hop)


def test_a_checkpoint_of_another_topic_is_refused(settings: Settings) -> None:
    _write(settings, "ingest", {"other": {"0": 5}})
    with pytest.raises(UserError, match="it reads topic other, and the settings say log"):
        require_whole(settings, "ingest")


def test_a_checkpoint_that_was_moved_is_refused(settings: Settings) -> None:
    root = _write(settings, "judge", _reads(settings, "usage"))
    schema = root / "state" / "0" / "_stateSchema" / "default" / "0_1"
    noted = root / "state" / "0" / "_metadata" / "v2" / "0"
    for file, text in ((schema, ""), (noted, f'v2\n{{"stateSchemaFilePaths":["file:{schema}"]}}')):
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    assert require_whole(settings, "judge")
    moved = root.rename(root.with_name("elsewhere"))
    shutil.copytree(moved, root)
    shutil.rmtree(moved)
    assert require_whole(settings, "judge")  # a copy that is back in its place
    noted.write_text(noted.read_text("utf-8").replace("checkpoints", "before"), encoding="utf-8")
    with pytest.raises(UserError, match=r"it was made at .*/before/judge and cannot be used elsewhere"):
        require_whole(settings, "judge")


def test_tables_made_anew_are_other_tables(settings: Settings) -> None:
    _write(settings, "measure", _reads(settings, "requests"))
    shutil.rmtree(settings.tables)
    create_tables(settings)
    with pytest.raises(UserError, match="or to other tables"):
        require_whole(settings, "measure")


def test_a_lost_checkpoint_is_refused_unless_a_new_lineage_is_asked_for(settings: Settings) -> None:
    assert require_lineage(settings, ["ingest"], is_new=False) == []  # the first start
    root = Path(settings.tables)
    write_table(root, "requests", *(request(offset) for offset in (3, 5)), request(4, partition=2))
    write_table(root, "requests", request(99, topic="other"), request(98, cluster_id="other"))
    with pytest.raises(UserError, match=r"^checkpoint .*/ingest is missing, but table requests has rows"):
        require_lineage(settings, ["ingest"], is_new=False)
    assert require_lineage(settings, ["ingest"], is_new=True) == ["ingest"]
    # Behind the newest offset of each partition that the table has; whatever topic is subscribed to then.
    assert stored_lineage(settings, "ingest") == Lineage(offsets={"log": {"0": 6, "2": 5}})


def test_a_lineage_begins_with_the_commits_of_the_last_hour(settings: Settings) -> None:
    root = Path(settings.tables)
    # usage reaches second 7,200; the commits of requests are of seconds 0, 5,000 and 7,200 (versions 1, 2 and 3).
    write_table(root, "usage", usage(7_200))
    for second in (0, 5_000, 7_200):
        write_table(root, "requests", request(second, T0_MS + second * 1_000))
    require_lineage(settings, ["measure"], is_new=True)
    assert stored_lineage(settings, "measure") == Lineage(2, {"1": T0_MS + 7_200_000}, state_form=2)


def test_nothing_is_left_out_of_tables_that_were_made_anew(settings: Settings) -> None:
    write_table(Path(settings.tables), "usage", usage())
    require_lineage(settings, ["measure"], is_new=True)
    assert stored_lineage(settings, "measure") != Lineage(state_form=2)
    shutil.rmtree(settings.tables)
    create_tables(settings)
    require_lineage(settings, ["measure"], is_new=False)
    assert stored_lineage(settings, "measure") == Lineage(state_form=2)
