"""What Spark reports about a query becomes rows, lags and times; literal reports of Spark 4.2."""

from __future__ import annotations

from typing import Any

from kquota_spark.audit.progress import Progress, read_text

KAFKA = {
    "description": "KafkaV2[Subscribe[t]]",
    "endOffset": {"t": {"0": 9_000, "1": 500}},
    "latestOffset": {"t": {"0": 9_998, "1": 10_002}},
}


def _report(batch: int, second: int, rows: int, source: dict[str, Any], **more: Any) -> dict[str, Any]:
    duration = {"addBatch": 1_500, "triggerExecution": 2_000} if rows else {"triggerExecution": 20}
    return {
        "batchId": batch,
        "timestamp": f"2026-11-21T05:40:{second:02}.000Z",
        "numInputRows": rows,
        "durationMs": duration,
        "stateOperators": [],
        "sources": [source],
        **more,
    }


START_S = 1_795_239_600  # 2026-11-21 05:40:00 UTC


def test_rows_add_up_and_the_first_batch_stands_apart() -> None:
    progress = Progress()
    progress.add(_report(0, 0, 1_000, KAFKA))
    progress.add(_report(1, 10, 3_000, KAFKA))
    assert (progress.rows, progress.batches, progress.batch_s, progress.last_batch_s) == (4_000, 2, 4.0, 2.0)
    assert progress.warm_rows_per_s == 3_000 / 2.0
    assert progress.last_seen_s == START_S + 10 + 2.0
    assert str(progress) == "4,000 rows read in 4.0 s (1,500 a second after the first batch)"


def test_a_waiting_query_reports_with_the_next_number_and_counts_no_batch() -> None:
    progress = Progress()
    progress.add(_report(0, 0, 1_000, KAFKA))
    progress.add(_report(1, 10, 0, KAFKA))
    progress.add(_report(1, 20, 500, KAFKA))
    assert (progress.rows, progress.batches) == (1_500, 2)
    assert progress.reported == "2026-11-21T05:40:20.000Z"


def test_the_line_of_the_job_names_what_it_counts() -> None:
    progress = {"log": Progress(rows=7_968), "jmx": Progress(rows=120)}
    assert read_text(progress) == "messages read: 7,968 of the log, 120 of jmx"


def test_kafka_lag_is_what_all_partitions_still_hold() -> None:
    assert Progress().offsets_behind is None
    progress = Progress()
    progress.add(_report(0, 0, 1_000, KAFKA))
    assert progress.offsets_behind == (9_998 - 9_000) + (10_002 - 500)
    # A partition that was added since is behind from its start.
    progress.add(_report(1, 1, 1, {**KAFKA, "latestOffset": {"t": {"0": 9_998, "1": 10_002, "2": 40}}}))
    assert progress.offsets_behind == 998 + 9_502 + 40


def test_watermark_and_rows_behind_it() -> None:
    progress = Progress()
    event_time = {"watermark": "2026-11-21T05:39:58.500Z"}
    states = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}]
    progress.add(_report(0, 0, 1, KAFKA, eventTime=event_time, stateOperators=states))
    assert (progress.watermark_s, progress.dropped) == (START_S - 1.5, 3)
