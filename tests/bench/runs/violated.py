"""`python -m tests.bench.runs.violated`: what the driver takes when all buckets are violated at once. 1 minute.

The tasks are another process. So the memory is the driver's: it gets their pieces of episodes, as its accumulator has
them, folds them into the open episodes and commits.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa

from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import Judged, Seconds
from kquota_spark.config.settings import Settings
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.creation import create_tables
from tests.bench.report import Report, say
from tests.support.tables.table_rows import T0_MS
from tests.support.tables.violated_buckets import SECONDS, reported_pieces

BUCKETS = int(os.environ.get("BENCH_BUCKETS", "100000"))
_BATCHES = int(os.environ.get("BENCH_BATCHES", "4"))
_COLUMNS = {
    "batch": "micro-batch", "mb": "from the tasks, MB", "cpu_s": "driver, CPU s", "peak_mb": "driver, peak MB",
}  # fmt: skip


def main() -> int:
    """Fold micro-batches of `BUCKETS` buckets that stay violated."""
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root = Path(name)
        settings = Settings(
            cluster_id="demo", tables=str(root / "tables"), checkpoints=str(root / "checkpoints")
        )
        create_tables(settings)
        say(f"{BUCKETS:,} buckets are violated for {SECONDS} s per micro-batch")
        fold, gap_ms = EpisodeFold(settings), settings.stream.episode_gap
        context = multiprocessing.get_context("spawn")
        with Report("violated", _COLUMNS) as report, ProcessPoolExecutor(1, context) as tasks:
            for number in range(_BATCHES):
                first_s = number * SECONDS
                reported = tasks.submit(reported_pieces, BUCKETS, first_s, gap_ms).result()
                begun_s = time.process_time()
                pieces = pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in reported])
                newest_ms = T0_MS + 1_000 * (first_s + SECONDS - 1)
                seconds = Seconds("demo", 1, "produce", "log", newest_ms - 1_000 * (SECONDS - 1), newest_ms)
                fold.fold(Judged(pieces, [seconds]), MicroBatch("query", number), newest_ms)
                cpu_s = time.process_time() - begun_s
                peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
                size_mb = sum(map(len, reported)) / 1e6
                report.add({"batch": str(number), "mb": size_mb, "cpu_s": cpu_s, "peak_mb": peak_mb})
    return 0


if __name__ == "__main__":
    sys.exit(main())
