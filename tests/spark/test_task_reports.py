"""What tasks tell of what they have written comes to the driver once, however often a task ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kquota_spark.audit.task_reports import Span, TaskReport, TaskReports
from kquota_spark.store.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def part(path: str) -> Part:
    return Part(path, 1, "2026-11-21", 1, "{}", 0)


def test_of_two_runs_of_a_task_one_counts_and_nothing_is_heard_twice(spark: SparkSession) -> None:
    reports = TaskReports(spark.sparkContext)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        for attempt in ("lost", "kept"):
            span = Span("log", 0, 0, rows - 1, rows)
            reports.add(TaskReport("requests", [part(attempt)], {"rows": rows}, brokers=[1], spans=[span]))
        reports.add(TaskReport("usage", [part("usage")], {"rows": 1}))
        return iter(())

    spark.range(0, 7, 1, 2).mapInArrow(write, "nothing int").collect()
    heard = reports.take()
    assert sorted((each.table, each.counts["rows"], len(each.parts)) for each in heard) == [
        ("requests", 3, 1),
        ("requests", 4, 1),
        ("usage", 1, 1),
        ("usage", 1, 1),
    ]
    assert {each.spans[0].lines for each in heard if each.table == "requests"} == {3, 4}
    # Names, sizes and statistics arrive as they were.
    assert [each.parts for each in heard if each.table == "requests"] == [[part("kept")]] * 2
    assert reports.take() == []
