"""After a long stop the job works through its backlog in micro-batches of bounded size."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from tests.fault.conftest import Run
from tests.support.clusters.audited_topic import (
    COPIES,
    LINES,
    TOPIC,
    assert_equal_tables,
    configured,
    finish,
)

MOST = 1_000
MEMORY = ("--driver-memory", "512m")


def test_a_backlog_of_twelve_triggers_is_no_larger_micro_batch(
    cluster: Cluster, calm: Run, tmp_path: Path
) -> None:
    config = configured(tmp_path / "behind", cluster, most_lines=MOST)
    finish(config, *MEMORY)
    ends = [0, *_lines_read(tmp_path / "behind" / "checkpoints" / "log" / "offsets")]
    sizes = [after - before for before, after in itertools.pairwise(ends)]
    assert sum(sizes) == LINES + COPIES
    # 12,000 lines in shares of 1,000; a share of a partition is rounded, and the last ones close the seconds.
    assert max(sizes) <= MOST
    assert len([size for size in sizes if size]) >= (LINES + COPIES) // MOST
    assert_equal_tables(calm.root, tmp_path / "behind")


def _lines_read(offsets: Path) -> list[int]:
    """Up to the end of each micro-batch, over all partitions; the checkpoint keeps the last hundred of them."""
    files = sorted(
        (file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name)
    )
    assert files[0].name == "0"
    return [sum(_of_topic(file).values()) for file in files]


def _of_topic(file: Path) -> dict[str, int]:
    sources = [json.loads(line) for line in file.read_text("utf-8").splitlines()[2:] if line.startswith("{")]
    [found] = [source[TOPIC] for source in sources if TOPIC in source]
    return dict(found)
