"""Files that a worker has written and nobody has committed yet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.parts import Part, PartWriter


def written(settings: Settings, *rows: dict[str, Any]) -> list[Part]:
    """The files of one task, as they come to the driver; the rows are decisions, each a batch of its own."""
    writer = PartWriter(settings, DECISIONS)
    data = [{name: row.get(name) for name in DECISIONS.names} for row in rows]
    for batch in pa.Table.from_pylist(data, schema=DECISIONS.arrow_schema()).to_batches(max_chunksize=1):
        writer.write(batch)
    return list(writer.close())
