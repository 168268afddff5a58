"""Offsets that the query passed without their lines: found from its checkpoint and `requests`, once, and told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.audit.gaps import lost_offsets
from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.audit.progress import Progress
from kquota_spark.config.settings import Settings
from kquota_spark.schema.gap_tables import BROKER_START, EXPIRED_UNREAD, MID_STREAM, RECREATED
from tests.support.tables.recorded_gaps import FollowedRun, Told, settings_at, stored
from tests.support.tables.table_rows import T0_MS, request, write_table

AT_MS = T0_MS + 3_600_000
"""When the micro-batches were planned: an hour after the lines."""


@pytest.fixture(autouse=True)
def silent_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say what it still has: what is missing counts as expired."""
    monkeypatch.setattr(lost_offsets, "first_offsets", lambda _settings, _places: {})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Tables and checkpoints; the driver has looked before the first query was started."""
    made = settings_at(tmp_path)
    record_gaps(made)
    return made


def ran(settings: Settings, batch: int, ends: Mapping[str, int], *, is_committed: bool = True) -> None:
    """A micro-batch, as its checkpoint notes it."""
    root = Path(settings.checkpoints) / "log"
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "metadata").write_text('{"id":"one-query"}', encoding="utf-8")
    lines = ["v1", json.dumps({"batchTimestampMs": AT_MS + batch}), json.dumps({"log": ends} if ends else {})]
    (root / "offsets" / str(batch)).write_text("\n".join(lines), encoding="utf-8")
    if is_committed:
        (root / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")


def read(settings: Settings, offsets: Iterable[int], broker_id: int = 1, **more: Any) -> None:
    """Lines of a broker, one a millisecond after the offset."""
    rows = [
        request(offset, T0_MS + offset, broker_id=broker_id, connection=f"c{offset}-0", **more)
        for offset in offsets
    ]
    write_table(Path(settings.tables), "requests", *rows)


def losses(settings: Settings) -> list[tuple[Any, ...]]:
    return [row for row in stored(settings) if row[-1] not in (BROKER_START, MID_STREAM)]


def test_what_was_read_whole_is_no_loss(settings: Settings) -> None:
    ran(settings, 0, {"0": 100})
    read(settings, range(100))
    ran(settings, 1, {"0": 150, "1": 7})
    read(settings, range(100, 150))
    read(settings, range(7), partition=1)
    ran(settings, 2, {"0": 400}, is_committed=False)  # of which nothing is written yet
    assert record_gaps(settings) == []
    assert losses(settings) == []


def test_lines_that_have_no_row_are_read_and_what_is_missing_between_them_is_found(
    settings: Settings,
) -> None:
    ran(settings, 0, {"0": 100})
    # 20 kept, 80 in two sums whose lines alternate: 0 to 98 and 1 to 99.
    read(settings, range(10, 30))
    read(settings, [98], kind="left_out", first_offset=0, lines=40)
    read(settings, [99], kind="left_out", first_offset=1, lines=40)
    assert record_gaps(settings) == [
        "the audit begins in mid-stream of the log of broker 1: 12 s are uncertain"
    ]
    assert losses(settings) == []
    # From 100 to 199 seven are missing, 140 to 146.
    ran(settings, 1, {"0": 200})
    read(settings, [139], kind="left_out", first_offset=100, lines=40)
    read(settings, [147])
    read(settings, [199], kind="left_out", first_offset=148, lines=52)
    assert record_gaps(settings)[0].startswith(
        "log partition 0: 7 offsets from 140 on expired before they were read"
    )
    assert losses(settings) == [(1, 139, 147, EXPIRED_UNREAD)]


def test_expired_lines_are_one_gap_of_each_broker_of_the_partition_and_told_once(settings: Settings) -> None:
    ran(settings, 0, {"0": 100, "1": 100})
    read(settings, range(100))
    read(settings, range(60), broker_id=2)  # a broker that nothing came of since
    read(settings, range(100), partition=1, broker_id=4)
    ran(settings, 1, {"0": 250, "1": 200})
    read(settings, range(180, 250))
    read(settings, range(190, 250), broker_id=3)
    read(settings, range(100, 200), partition=1, broker_id=4)
    assert record_gaps(settings)[0] == (
        "log partition 0: 80 offsets from 100 on expired before they were read; verdicts of its brokers (1, 2, 3) are "
        "uncertain there (log_gaps): raise retention.ms of the topic above the longest time that the audit is not "
        "running"
    )
    assert losses(settings) == [
        (1, 99, 180, EXPIRED_UNREAD),
        (2, 59, 3_600_001, EXPIRED_UNREAD),
        (3, None, 190, EXPIRED_UNREAD),
    ]
    # When retention takes rows of the table, that is no loss of the topic.
    DeltaTable(f"{settings.tables}/requests").delete("kafka_offset < 220")
    assert record_gaps(settings) == []
    ran(settings, 2, {"0": 260, "1": 200})
    read(settings, range(250, 260))
    assert record_gaps(settings) == []


def test_expired_lines_of_which_a_crash_left_no_word_are_found_at_the_next_start(settings: Settings) -> None:
    ran(settings, 0, {"0": 100})
    read(settings, range(100))
    record_gaps(settings)
    # Two micro-batches without a row, then one with the end of the hole, and a hole within.
    for batch, end in enumerate((120, 140, 200), start=1):
        ran(settings, batch, {"0": end})
    read(settings, range(150, 170))
    read(settings, range(180, 200))
    assert [note.split(";")[0] for note in record_gaps(settings)] == [
        "log partition 0: 50 offsets from 100 on expired before they were read",
        "log partition 0: 10 offsets from 170 on expired before they were read",
    ]
    assert losses(settings) == [(1, 169, 180, EXPIRED_UNREAD), (1, 99, 150, EXPIRED_UNREAD)]
    # The crash came between the rows and the note of it.
    (Path(settings.checkpoints) / "log.compared.json").write_text(
        '{"query_id":"one-query","batch":0}', encoding="utf-8"
    )
    record_gaps(settings)
    assert len(losses(settings)) == 2


def test_a_topic_made_anew_is_a_gap_up_to_when_it_was_noticed(settings: Settings) -> None:
    ran(settings, 0, {"0": 100})
    read(settings, range(100))
    ran(settings, 1, {"0": 20})
    ran(settings, 2, {"0": 30})
    read(settings, range(20, 30), kafka_timestamp_ms=AT_MS + 500, record_time_ms=AT_MS + 499)
    (note,) = record_gaps(settings)[:1]
    assert note == (
        "log partition 0: the topic was deleted and recreated: read to 100, now it ends at 20, and what it holds up to "
        "there is not read; verdicts of its brokers (1) are uncertain there (log_gaps): let the topic be, or give the "
        "new one another name"
    )
    assert losses(settings) == [(1, 99, 3_600_001, RECREATED)]
    ran(settings, 3, {})
    assert "read to 30, now it is gone;" in record_gaps(settings)[0]


def test_a_checkpoint_of_a_release_that_ended_at_a_loss_is_taken_as_it_is(settings: Settings) -> None:
    (Path(settings.checkpoints) / "log.compared.json").unlink()
    ran(settings, 0, {"0": 100})
    ran(settings, 1, {"0": 200})
    read(settings, range(150, 200))  # retention has taken the others
    record_gaps(settings)
    assert losses(settings) == []
    ran(settings, 2, {"0": 300})
    read(settings, range(250, 300))
    record_gaps(settings)
    assert losses(settings) == [(1, 199, 250, EXPIRED_UNREAD)]


def test_a_checkpoint_begun_anew_is_compared_from_its_own_first_micro_batch(settings: Settings) -> None:
    ran(settings, 0, {"0": 100})
    read(settings, range(100))
    record_gaps(settings)
    ran(settings, 0, {"0": 200})
    (Path(settings.checkpoints) / "log" / "metadata").write_text('{"id":"another"}', encoding="utf-8")
    (Path(settings.checkpoints) / "log.lineage.json").write_text(
        '{"offsets":{"log":{"0":100}}}', encoding="utf-8"
    )
    read(settings, range(130, 200))
    record_gaps(settings)
    assert losses(settings) == [(1, 99, 130, EXPIRED_UNREAD)]


@pytest.mark.parametrize(
    ("start", "end", "is_backward"),
    [
        (None, {"log": {"0": 100}}, False),
        ({"log": {"0": 100, "1": 5}}, {"log": {"0": 200, "1": 5, "2": 9}}, False),
        ({"log": {"0": 100}}, {"log": {"0": 100}}, False),
        ({"log": {"0": 100}}, {"log": {"0": 20}}, True),
        ({"log": {"0": 100}}, {}, True),
    ],
)
def test_progress_tells_of_a_partition_that_ends_before_its_start(
    start: object, end: object, is_backward: bool
) -> None:
    progress = Progress()
    source = {"startOffset": start, "endOffset": end}
    progress.add(
        {"timestamp": "2026-11-21T05:40:00.000Z", "numInputRows": 0, "durationMs": {}, "sources": [source]}
    )
    assert progress.backward_batches == int(is_backward)


def test_a_micro_batch_tells_of_a_gap_before_it_is_judged(settings: Settings) -> None:
    said: list[str] = []
    run = FollowedRun(settings, said.append)
    ran(settings, 0, {"0": 100})
    read(settings, range(100))
    run.follow([Told([("log", 0, 0, 49, 50)], [1]), Told([("log", 0, 50, 99, 50)])], 0)
    assert losses(settings) == []
    # It is not noted as done yet. Offsets 150 to 159 have expired, and nothing else would tell it.
    ran(settings, 1, {"0": 200}, is_committed=False)
    read(settings, [*range(100, 150), *range(160, 200)])
    run.follow([Told([("log", 0, 160, 199, 40)], [1]), Told([("log", 0, 100, 149, 50)], [1])], 1)
    assert losses(settings) == [(1, 149, 160, EXPIRED_UNREAD)]
    ran(settings, 2, {"0": 220}, is_committed=False)
    read(settings, range(210, 220))
    run.follow([Told([("log", 0, 210, 219, 10)], [1])], 2)
    assert losses(settings) == [(1, 149, 160, EXPIRED_UNREAD), (1, 199, 210, EXPIRED_UNREAD)]
