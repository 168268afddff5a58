"""`python -m tests.reviews`: the figures of `kquota review`. Exits with 1 if one is outside of its bound.

KQUOTA_SEED=n draws other quotas, encodings and names.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.reports.review.comment import MOST_BYTES
from tests.reviews.encodings import alarms
from tests.reviews.week import review_week, write_week
from tests.support.chance import drawn

MOST_S = 60.0
"""Maximum seconds of the review of a week of 1,000 clients on two cores."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, review, and print one figure per line."""
    options = argparse.ArgumentParser(prog="python -m tests.reviews", description=__doc__)
    options.add_argument("--pairs", type=int, default=200, metavar="N", help="encodings; default: 200")
    options.add_argument(
        "--clients", type=int, default=1_000, metavar="N", help="of the week; default: 1,000"
    )
    options.add_argument("--days", type=int, default=7, metavar="N", help="of the week; default: 7")
    chosen = options.parse_args(arguments)
    chance = drawn("reviews")
    with tempfile.TemporaryDirectory() as folder:
        found = alarms(chance, chosen.pairs, Path(folder))
    print(f"alarms for equal quotas in other encodings: {len(found.found)} of {chosen.pairs}")
    with tempfile.TemporaryDirectory() as folder:
        write_week(Path(folder), chance, chosen.clients, chosen.days)
        load = os.getloadavg()[0]
        took = review_week(Path(folder), chosen.clients, chosen.days)
    print(
        f"{chosen.days} days of {chosen.clients:,} clients, {took.requests:,} requests: {took.seconds:.1f} s"
    )
    print(f"load of the machine before: {load:.1f} on {os.cpu_count()} cores; memory: {took.largest_mb:,} MB")
    print(f"comment: {took.comment_bytes:,} bytes, exit code {took.code}: {took.headline}")
    is_fine = not found.found and took.seconds <= MOST_S and took.comment_bytes <= MOST_BYTES
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
