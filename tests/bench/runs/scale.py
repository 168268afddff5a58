"""`python -m tests.bench.runs.scale`: lines per second on one and on two executors of one core each. 7 minutes.

The executors are JVMs of their own (`local-cluster`); driver, executors and the broker share the machine. On a machine
with two cores the second executor therefore adds less than a core.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.bench.job import bench_place
from tests.bench.preloaded import Case, Size, measure, preload
from tests.bench.report import Report, say
from tests.bench.rounds import CPU_COLUMNS, cpu_cells

SIZE = Size(int(os.environ.get("SCALE_WARM_UP", "1000000")), int(os.environ.get("SCALE_LINES", "600000")))
MASTERS = ("local-cluster[1,1,2048]", "local-cluster[2,1,2048]")
_COLUMNS = {
    "master": "master of Spark",
    "lines_per_s": "lines per second (range)",
    "to_one": "times one executor",
    **CPU_COLUMNS,
    "reconciled": "reconciled",
}


def main() -> int:
    """Print the figures; 1 if a table does not add up."""
    of_one, is_sound = 0.0, True
    with Report("scale", _COLUMNS) as report, bench_place() as at:
        for number, master in enumerate(MASTERS, start=1):
            case = Case(f"executors-{number}", master=master)
            place = preload(case, at, SIZE.warm_up)
            found = measure(case, place, SIZE)
            shutil.rmtree(place.root)
            of_one = of_one or found.lines_per_s.median
            report.add(
                {
                    "master": f"`{master}`",
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
