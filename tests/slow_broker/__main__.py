"""`python -m tests.slow_broker --seed N --runs 20`: does `kquota slow` name the client that slows a real broker?"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.embedded.cluster import embedded_cluster
from tests.slow_broker.plan import drawn_run
from tests.slow_broker.run import RUN_FILE, prepare, record_run, settings_of, wait_until_quiet
from tests.slow_broker.verdicts import judged, print_verdicts

_PER_BROKER = 20
"""Runs until the broker is started anew: its request log grows by up to 20 MB per second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record runs or take kept ones, and print what was found."""
    options = argparse.ArgumentParser(prog="python -m tests.slow_broker", description=__doc__)
    options.add_argument("--seed", type=int, default=1, metavar="N")
    options.add_argument(
        "--runs", type=int, default=20, metavar="N", help="with an antagonist, and as many without"
    )
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the logs here, by seed and run")
    options.add_argument("--from", type=Path, dest="kept", metavar="FOLDER", help="judge kept runs only")
    options.add_argument(
        "--quiet", type=float, default=100.0, metavar="PERCENT",
        help="wait before each run until programs wait for processors less than this (default: do not wait)",
    )  # fmt: skip
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kquota-slow-") as directory:
        kept = chosen.kept or chosen.keep or Path(directory) / "runs"
        if chosen.kept is None:
            _record(Path(directory), chosen.seed, chosen.runs, kept, chosen.quiet)
        folder = kept / f"seed-{chosen.seed}"
        print_verdicts([judged(path.parent) for path in sorted(folder.glob(f"*/{RUN_FILE}"))])
    return 0


def _record(directory: Path, seed: int, runs: int, kept: Path, quiet_percent: float) -> None:
    wanted = [(number, has) for number in range(runs) for has in (True, False)]
    for place in range(0, len(wanted), _PER_BROKER):
        io_threads = 1 + place // _PER_BROKER % 2
        with (
            tempfile.TemporaryDirectory(dir=directory) as of_broker,
            embedded_cluster(Path(of_broker), settings=settings_of(io_threads)) as cluster,
        ):
            known = prepare(cluster)
            for number, has in wanted[place : place + _PER_BROKER]:
                folder = kept / f"seed-{seed}" / f"{'antagonist' if has else 'calm'}-{number:02}"
                wait_until_quiet(quiet_percent)
                record_run(cluster, known, drawn_run(seed, number, has), seed, io_threads, folder)
        print(f"{min(place + _PER_BROKER, len(wanted))} of {len(wanted)} runs recorded", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
