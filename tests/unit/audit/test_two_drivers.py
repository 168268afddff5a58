"""A second driver of the same query: which of the two ends, what it says, and what it leaves as it was."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.commit import Sink
from kquota_spark.audit.job import run_audit
from kquota_spark.audit.task_reports import TaskReport
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.checkpoints.checkpoints import JMX
from kquota_spark.checkpoints.driver_lock import driver_lock
from kquota_spark.checkpoints.runs import Run, begun_run
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.columns import VERSION_PROPERTY
from kquota_spark.schema.tables import DECISIONS
from tests.support.spark.queries import only, rows_of
from tests.support.tables.recorded_gaps import settings_at
from tests.support.tables.table_rows import T0_MS, decision
from tests.support.tables.written_parts import written

QUERY_ID = "sql.streaming.queryId"
NO_PIECES = pieces_of(DECISIONS.arrow_schema().empty_table(), 0)


class Rows:
    """What Spark hands to the sink: it runs the tasks at `collect`, and knows the query by a property."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None, **properties: str) -> None:
        self.sparkSession = self.sparkContext = self
        self._properties: dict[str, str] = {QUERY_ID: "q"} | properties
        self.collect = meanwhile

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
        return self._properties.get(name)

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's
        self._properties[name] = value


class Reports:
    """One decision a micro-batch, of the second after the one before."""

    def __init__(self, settings: Settings, first_second: int = 0) -> None:
        self._settings, self._second = settings, first_second

    def take(self) -> list[TaskReport]:
        parts = written(self._settings, decision(self._second, source="jmx"))
        self._second += 1
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, NO_PIECES.schema):
            pass
        return [TaskReport("decisions", parts, {}, pieces=bytes(stream.getvalue()))]


def planned(settings: Settings, *batches: int) -> None:
    """The checkpoint's notes of micro-batches that have begun."""
    folder = Path(settings.checkpoints) / JMX / "offsets"
    folder.mkdir(parents=True)
    for batch in batches:
        (folder / str(batch)).write_text(f"v1\n{json.dumps({})}\n{json.dumps({})}", encoding="utf-8")


def driver(settings: Settings, first_second: int = 0, run: Run | None = None) -> Sink:
    return Sink(settings, JMX, cast(Any, Reports(settings, first_second)), print, run)


def committed(sink: Sink, number: int, rows: Rows | None = None) -> None:
    sink.commit(cast(Any, rows or Rows()), number)


def seconds(settings: Settings) -> list[int]:
    return [(time_ms - T0_MS) // 1_000 for (time_ms,) in only(rows_of(settings, "decisions"), "second")]


@pytest.mark.parametrize("is_paused_at_its_commit", [False, True])
def test_a_driver_that_wakes_up_after_its_successor_has_worked_ends_with_one_line(
    tmp_path: Path, is_paused_at_its_commit: bool
) -> None:
    settings = settings_at(tmp_path)
    planned(settings, 0, 1, 2)
    first = driver(settings, run=begun_run(settings, JMX))
    committed(first, 0)

    def successor_works() -> None:
        successor = driver(settings, 1, begun_run(settings, JMX))
        committed(successor, 1)
        committed(successor, 2)

    if not is_paused_at_its_commit:
        successor_works()
    place = re.escape(f"{tmp_path}/checkpoints/jmx")
    with pytest.raises(
        UserError,
        match=rf"^checkpoint {place}: another driver took it over at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC "
        rf"\(host {re.escape(socket.gethostname())}, pid {os.getpid()}\), so this one has ended: "
        "let one scheduler start the audit, once$",
    ):
        committed(first, 1, Rows(successor_works) if is_paused_at_its_commit else None)
    assert seconds(settings) == [0, 1, 2]


def as_they_are(root: Path) -> dict[str, bytes]:
    """All files of tables and checkpoints; a version of a table is a file of its log."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def of_older_release(tmp_path: Path) -> Settings:
    """Tables and notes that a start would change: an older schema, a table that is missing, a note of another query."""
    root, made = tmp_path, settings_at(tmp_path)
    shutil.rmtree(root / "tables" / "jmx_samples")
    table = DeltaTable(f"{made.tables}/violations")
    table.alter.set_table_properties({VERSION_PROPERTY: "1"}, raise_if_not_exists=False)
    (root / "checkpoints").mkdir()
    (root / "checkpoints" / "log.compared.json").write_text('{"query_id":"q","batch":3}', encoding="utf-8")
    # Only Java reads such a store: topics are Spark's business, and no Kafka is asked.
    return replace(made, kafka=Kafka(topic="log", options={"ssl.truststore.location": "/etc/trust.jks"}))


def test_a_second_driver_that_is_refused_has_changed_no_table_and_no_note(
    tmp_path: Path, of_older_release: Settings
) -> None:
    with driver_lock(of_older_release.checkpoints, "log"):
        before = as_they_are(tmp_path)
        with pytest.raises(
            UserError, match=rf"are in use by another driver \(pid {os.getpid()}\): stop it first"
        ):
            run_audit(of_older_release, is_once=True, is_drained=False)
        assert as_they_are(tmp_path) == before


def test_a_start_without_pinned_threads_is_refused_before_anything_is_written(
    tmp_path: Path, of_older_release: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = as_they_are(tmp_path)
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "False")
    with pytest.raises(
        UserError, match=r"^PYSPARK_PIN_THREAD=False is set in the environment, .*: unset it$"
    ):
        run_audit(of_older_release, is_once=True, is_drained=False)
    assert as_they_are(tmp_path) == before


def test_a_micro_batch_without_the_id_of_its_query_is_refused(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    planned(settings, 0)
    rows = Rows()
    rows._properties.clear()
    with pytest.raises(UserError, match=r"^Spark gave no id of the query jmx .*: unset PYSPARK_PIN_THREAD"):
        committed(driver(settings), 0, rows)
    assert seconds(settings) == []
