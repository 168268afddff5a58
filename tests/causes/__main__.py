"""`python -m tests.causes --seed N`: does `kquota why` name the cause that was made, on real brokers?

Ten buckets with a cause and ten without run side by side on three real brokers. Two seeds at a time take two and a half
minutes. The table has the label of each bucket against the cause that is named first. `--keep` keeps the logs, and
`--from` judges kept ones again in seconds.

Each run begins with 75 s of calm, which the product takes as usual: "the time before", its last choice, without any
change. Weeks or a day before cannot be recorded. Two times are scaled: a client counts as new if the tables contain
60 s before it, instead of ten minutes, and the first limit of each user counts as set an hour earlier.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kquota_spark.embedded.cluster import embedded_cluster
from kquota_spark.embedded.settings import BrokerSettings
from tests.causes.mixtures import MIXTURES
from tests.causes.nulls import NULLS
from tests.causes.plan import BROKERS, CAUSES
from tests.causes.recording import Answer, answers
from tests.causes.run import prepare, record_seed, users
from tests.causes.scenarios import SCENARIOS
from tests.causes.verdicts import print_verdicts

_AT_ONCE = 40
"""Buckets that run side by side."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record seeds or take kept ones, and print what was found."""
    options = argparse.ArgumentParser(prog="python -m tests.causes", description=__doc__)
    options.add_argument("--seed", type=int, action="append", metavar="N", help="may be repeated (default 1)")
    options.add_argument("--cause", choices=[*SCENARIOS], action="append", help="only this one")
    options.add_argument("--mixtures", action="store_true", help="only those with two causes")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep logs and quotas here, by seed")
    options.add_argument("--from", type=Path, dest="kept", metavar="FOLDER", help="judge kept runs only")
    chosen = options.parse_args(arguments)
    usual = [*MIXTURES] if chosen.mixtures else [*CAUSES, *NULLS]
    labels, seeds = chosen.cause or usual, chosen.seed or [1]
    with tempfile.TemporaryDirectory(prefix="kquota-causes-") as directory:
        kept = chosen.kept or chosen.keep or Path(directory) / "runs"
        if chosen.kept is None:
            _record(Path(directory) / "cluster", seeds, labels, kept)
        found: list[Answer] = []
        for seed in seeds:
            found += answers(_folder(kept, seed), Path(directory) / f"tables-{seed}")
    print_verdicts([answer for answer in found if answer.label in labels])
    return 0


def _record(directory: Path, seeds: Sequence[int], labels: Sequence[str], kept: Path) -> None:
    settings = BrokerSettings(users=users(seeds, labels))
    with embedded_cluster(directory, BROKERS, settings=settings) as cluster:
        prepare(cluster)
        at_once = max(_AT_ONCE // len(labels), 1)
        with ThreadPoolExecutor(at_once) as pool:
            for place in range(0, len(seeds), at_once):
                together = seeds[place : place + at_once]
                list(pool.map(lambda seed: record_seed(cluster, seed, labels, _folder(kept, seed)), together))
                print(f"{min(place + at_once, len(seeds))} of {len(seeds)} seeds recorded", file=sys.stderr)


def _folder(kept: Path, seed: int) -> Path:
    return kept / f"seed-{seed}"


if __name__ == "__main__":
    sys.exit(main())
