"""`python -m tests.closed_loop`: is any promise of enforcement broken in random scenarios? Exits with 1 if one is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.closed_loop import closed_loop

_PROGRESS_EVERY = 100


def _report_progress(done: int) -> None:
    if done % _PROGRESS_EVERY == 0:
        print(f"{done:,} scenarios done", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios, and print what was done and what was broken."""
    options = argparse.ArgumentParser(prog="python -m tests.closed_loop", description=__doc__)
    options.add_argument("--scenarios", type=int, default=10_000, metavar="N", help="default: 10,000")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="the only source of chance")
    chosen = options.parse_args(arguments)
    summary = closed_loop.run(chosen.scenarios, chosen.seed, _report_progress)
    for what, kind, count in summary.rows():
        print(f"{what:<20}{kind:<16}{count:>12,}")
    for line in summary.first_broken:
        print(f"broken in scenario {line}")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
