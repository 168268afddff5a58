"""`spark-submit largest_state.py --config FILE`: the largest value in the state of a job that has ended, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.audit.spark import spark_session
from kquota_spark.config.loader import load_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BUCKETS, _OPEN_SECONDS = 0, 1
"""Operators of the query of the log."""


def largest_values(session: SparkSession, checkpoint: str) -> dict[str, int]:
    """Bytes of the largest value of open seconds, and of buckets, after any of the last micro-batches."""
    largest = {"seconds": 0, "buckets": 0}
    for batch in sorted(
        int(path.name) for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit()
    ):
        states = session.read.format("statestore").option("batchId", batch)
        seconds = states.option("operatorId", _OPEN_SECONDS).load(checkpoint)
        [parts] = seconds.select("value.*").columns
        buckets = states.option("operatorId", _BUCKETS).option("stateVarName", "buckets").load(checkpoint)
        sizes = {"seconds": _most(seconds, f"value.{parts}"), "buckets": _most(buckets, "value.state")}
        largest = {name: max(size, sizes[name]) for name, size in largest.items()}
    return largest


def _most(state: DataFrame, column: str) -> int:
    row = state.agg(F.max(F.octet_length(column))).head()
    return 0 if row is None or row[0] is None else int(row[0])


def main() -> int:
    """Print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    settings = load_settings(parser.parse_args().config)
    session = spark_session(settings, "largest state")
    print(json.dumps(largest_values(session, f"{settings.checkpoints}/log")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
