"""`python -m tests.bench.runs.scale`: lines per second on one and on two executors of one core each. 7 minutes.

They run on a Spark standalone cluster with logins, as docs/spark-cluster.md has it. Driver, executors and the broker
share the machine. On a machine with two cores the second executor therefore adds less than a core.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.bench.job import PATIENT, bench_place
from tests.bench.preloaded import Case, Size, measure, preload
from tests.bench.report import Report, say
from tests.bench.rounds import CPU_COLUMNS, cpu_cells
from tests.support.spark.standalone import standalone

SIZE = Size(int(os.environ.get("SCALE_WARM_UP", "1000000")), int(os.environ.get("SCALE_LINES", "600000")))
NODES = (1, 2)
_COLUMNS = {
    "nodes": "nodes of one executor and one core",
    "lines_per_s": "lines per second (range)",
    "to_one": "times one node",
    **CPU_COLUMNS,
    "reconciled": "reconciled",
}


def main() -> int:
    """Print the figures; 1 if a table does not add up."""
    of_one, is_sound = 0.0, True
    with Report("scale", _COLUMNS) as report, bench_place() as at:
        for nodes in NODES:
            with standalone(at.root / f"spark-{nodes}", nodes=nodes, conf=PATIENT) as spark:
                case = Case(f"nodes-{nodes}", spark=spark)
                place = preload(case, at, SIZE.warm_up)
                found = measure(case, place, SIZE)
            shutil.rmtree(place.root)
            of_one = of_one or found.lines_per_s.median
            report.add(
                {
                    "nodes": nodes,
                    "lines_per_s": found.lines_per_s,
                    "to_one": round(found.lines_per_s.median / of_one, 2),
                    **cpu_cells(found.rounds),
                    "reconciled": "no" if found.problems else "yes",
                }
            )
            for problem in found.problems:
                say(problem)
                is_sound = False
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
