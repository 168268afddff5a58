"""Rows of `requests` from rows of the Kafka source: headers by Spark, lines by the function that workers call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed, to_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parsed_rows(source: DataFrame, settings: IngestSettings) -> list[dict[str, Any]]:
    """In the order of their offsets."""
    reader = MessageReader(settings)
    batches = to_messages(source, settings).toArrow().to_batches()
    rows = [row for batch in batches if batch.num_rows for row in parsed(batch, reader).to_pylist()]
    return sorted(rows, key=lambda row: row["kafka_offset"])
