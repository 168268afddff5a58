"""An enforcer in a process of its own, to be stopped while it holds the lease.

It prints the number of its lease, waits for a line, writes a quota, and prints what became of that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.changes import Quota
from kquota_spark.enforce.ports import Change
from kquota_spark.enforcement.assembly import Edges, enforcement_edges
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.process.processes import wait_for
from tests.support.places import ROOT

LATE = Quota(Entity("late"), QuotaKey.PRODUCER_BYTE_RATE)
NEXT = Quota(Entity("next"), QuotaKey.PRODUCER_BYTE_RATE)
"""Different ones, so that it is the lease alone that can stop the late write."""
VALUE = 1_000_000.0


def main(config: Path) -> None:
    """Hold the lease and write late."""
    with enforcement_edges(load_settings(config)) as edges:
        held, fencing = edges.cluster.read([LATE])[LATE], edges.lease.acquire()
        assert fencing is not None
        print(fencing, flush=True)
        sys.stdin.readline()
        print(edges.cluster.write(Change.of(LATE, VALUE), held, fencing).outcome.name, flush=True)


@contextmanager
def running_enforcer(config: Path) -> Iterator[subprocess.Popen[str]]:
    """That process, killed at the end of the block."""
    program = [sys.executable, "-m", __name__, str(config)]
    process = subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def taken_over_while_stopped(config: Path, edges: Edges) -> tuple[int, int, str]:
    """Stop the holder, take the lease over and write, let the holder go on and write too.

    Returns:
        Both numbers, and the outcome of the holder's write.
    """
    with running_enforcer(config) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        first = int(holder.stdout.readline())
        assert edges.lease.acquire() is None
        holder.send_signal(signal.SIGSTOP)
        taken: list[int] = []

        def takes() -> bool:
            taken.extend(number for number in [edges.lease.acquire()] if number is not None)
            return bool(taken)

        assert wait_for(takes, within_s=60)
        held = edges.cluster.read([NEXT])[NEXT]
        assert edges.cluster.write(Change.of(NEXT, VALUE), held, taken[0]).outcome.name == "DONE"
        holder.send_signal(signal.SIGCONT)
        holder.stdin.write("write\n")
        holder.stdin.flush()
        return first, taken[0], holder.stdout.readline().strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
