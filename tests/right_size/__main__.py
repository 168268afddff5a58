"""`python -m tests.right_size --tenants 200 --seed N`: right sizes of generated tenants, against their known demand.

Each tenant has four weeks of history. A fifth week is held back, and judges the answer.
Parameters were fixed on the seeds 1 to 3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.right_size.acceptance import lines, outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tenants, and print the lines of acceptance; 1 if one is not reached."""
    options = argparse.ArgumentParser(prog="python -m tests.right_size", description=__doc__)
    options.add_argument("--tenants", type=int, default=200, metavar="N", help="default: 200")
    options.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the only source of chance (default 1)"
    )
    options.add_argument("--all", action="store_true", help="print each tenant too")
    chosen = options.parse_args(arguments)
    found = []
    for one in outcomes(chosen.seed, chosen.tenants):
        found.append(one)
        if chosen.all:
            size, truth = one.size, one.truth
            kind = "buffered" if one.tenant.is_buffered else "waits"
            forecast = "-" if one.forecast is None else f"{one.forecast.days:.0f}"
            true_days = "-" if one.true_days is None else f"{one.true_days:.0f}"
            print(
                f"{one.tenant.name:>7} {kind:<8} throttled {one.throttled_share:.3f} target {size.target / truth:.3f} "
                f"{'at least' if size.is_at_least else '        '} lower {size.lower / truth:.3f} upper "
                f"{(size.upper or float('inf')) / truth:.3f} moved {one.moved:.3f} after {one.throttled_after:.4f} "
                f"growth {one.tenant.growth:.4f} days {forecast} truly {true_days}"
            )
        if len(found) % 50 == 0:
            print(f"{len(found)} of {chosen.tenants} tenants", file=sys.stderr)
    for line in lines(found):
        mark = "ok" if line.is_reached else "NOT"
        print(f"{line.name:<45} {line.wanted:>12} {line.found:>12}  {mark}")
    return 0 if all(line.is_reached for line in lines(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
