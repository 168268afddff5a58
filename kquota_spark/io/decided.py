"""The sink of JUDGE: workers write `decisions`, the driver commits their files and folds the episodes.

A micro-batch is executed once. What comes to the driver are the names of files, the violated seconds and the newest
second of each broker. Both commits carry the query and the number of the micro-batch, so that one that runs again after
a crash adds nothing. If the crash was between the two, the episodes are folded from what had been committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError

from kquota_spark.config.settings import Settings
from kquota_spark.io.checkpoints import Checkpoint
from kquota_spark.io.violations import (
    EpisodeFold,
    Judged,
    Place,
    judged_of,
    seconds_by_place,
    violated_seconds,
)
from kquota_spark.model.episodes import LOG
from kquota_spark.schema.columns import Column, Table
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store import parts
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.parts import Part, PartWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART, _VIOLATED, _NEWEST = "part", "violated", "newest"
_WRITTEN = Table(
    "written",
    "what the driver has to know of the rows that a task has written",
    (Column("kind", "string", "part, violated or newest"), Column("body", "binary", "see `written`")),
)


def written(decisions: DataFrame, settings: Settings) -> DataFrame:
    """Write rows of `decisions` where they are.

    Returns:
        For each task what the driver has to know: files (`Part`), violated seconds (Arrow), newest seconds (JSON).
    """
    return decisions.mapInArrow(partial(_write, settings), _WRITTEN.ddl)


def _write(settings: Settings, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    writer = PartWriter(settings, DECISIONS)
    violated: list[pa.Table] = []
    newest: list[tuple[str, int, str, int]] = []
    schema = DECISIONS.arrow_schema()
    for batch in batches:
        if batch.num_rows:
            rows = pa.Table.from_batches([batch]).cast(schema)
            writer.write(rows.combine_chunks().to_batches()[0])
            violated.append(violated_seconds(rows))
            newest += seconds_by_place(rows, "max")
    found = [(_PART, parts.encoded(part)) for part in writer.close()]
    if violated:
        found.append((_VIOLATED, _as_bytes(pa.concat_tables(violated))))
        found.append((_NEWEST, msgspec.json.encode(newest)))
    if found:
        kinds, bodies = zip(*found, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(kinds), pa.array(bodies)], schema=_WRITTEN.arrow_schema())


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def commit_decided(settings: Settings) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` does with the rows of `written`."""
    commits, episodes = BatchCommits(settings, DECISIONS), EpisodeFold(settings)

    def commit(rows: DataFrame, number: int) -> None:
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        batch = MicroBatch(query_id, number)
        added, judged = _received(rows)
        if commits.has(batch):
            # The rules may have changed since: what counts is what was committed.
            decided = commits.rows_of(batch)
            judged = judged if decided is None else _committed(decided)
            commits.discard(added)
        elif added:
            commits.add(added, batch)
        episodes.fold(judged, batch)

    return commit


def _received(rows: DataFrame) -> tuple[list[Part], Judged]:
    """What the tasks of a micro-batch have written."""
    bodies: dict[str, list[bytes]] = {_PART: [], _VIOLATED: [], _NEWEST: []}
    try:
        collected = rows.collect()
    except Py4JJavaError as error:
        # Spark looks for an interruption in the text of the error, with a regular expression that overflows its
        # stack on Java's long traces.
        raise RuntimeError(str(error.java_exception.toString())) from None
    for row in collected:
        bodies[row.kind].append(bytes(row.body))
    seconds = [pa.ipc.open_stream(body).read_all() for body in bodies[_VIOLATED]]
    newest = [
        told
        for body in bodies[_NEWEST]
        for told in msgspec.json.decode(body, type=list[tuple[str, int, str, int]])
    ]
    empty = violated_seconds(DECISIONS.arrow_schema().empty_table())
    return [parts.decoded(body) for body in bodies[_PART]], judged_of(
        pa.concat_tables([empty, *seconds]), newest
    )


def _committed(decisions: pa.Table) -> Judged:
    return judged_of(violated_seconds(decisions), seconds_by_place(decisions, "max"))


def not_folded_from_ms(settings: Settings) -> dict[Place, int]:
    """Where the decisions begin that are written but perhaps not folded: of the micro-batch that is under way."""
    commits, found = BatchCommits(settings, DECISIONS), dict[Place, int]()
    for hop in ("judge", "judge_jmx"):
        checkpoint = Checkpoint.of(settings, hop)
        if not checkpoint.exists:
            continue
        done = -1 if checkpoint.last_batch is None else checkpoint.last_batch
        decided = commits.rows_of(MicroBatch(checkpoint.query_id, done + 1))
        if decided is not None:
            for cluster_id, broker_id, source, time_ms in seconds_by_place(decided, "min"):
                found[cluster_id, broker_id, source or LOG] = time_ms
    return found
