"""`python -m tests.mutants`: draws mutants of the code, and counts how many of them the tests catch.

A mutant is one small change: `<` becomes `<=`, a number grows by one, a statement is dropped. A mutant that no test
catches shows code that could be wrong unnoticed. The first run records which tests execute each line, which takes
minutes. Each mutant then runs only in the tests that execute its line.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.checkout import Checkout
from tests.mutants.evidence import Evidence, evidence
from tests.mutants.recording import test_of
from tests.mutants.sites import Site, all_sites
from tests.support.places import ROOT

FOLDERS = ("tests/unit", "tests/property", "tests/programs", "tests/spark")
SEED = 20261122
_TEST_S, _RUN_S, _SLOWER = 60, 120, 5
"""A mutant hangs if a test or a run takes longer than this, plus five times as long as without a mutant."""
_PASSED = (0, 5)
"""Exit codes of pytest: no test failed, or there was none."""
_SUMMARY = "short test summary info"
_FAILING = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_HANGS = "a time limit"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: the first test that failed, and how long it took."""

    site: Site
    caught_by: str | None
    seconds: float

    def __str__(self) -> str:
        if self.caught_by is None:
            return f"SURVIVED  {self.site}  {self.seconds:.1f} s"
        return f"caught    {self.site}  by {self.caught_by}  {self.seconds:.1f} s"


def drawn(sites: Sequence[Site], seed: int, count: int) -> list[Site]:
    """As many of the sites, each with an equal chance; all of them if there are no more."""
    return random.Random(seed).sample(sites, min(count, len(sites)))


def judge(site: Site, checkout: Checkout, recorded: Evidence) -> Verdict:
    """Run the tests of a mutant until one fails."""
    began_s = time.monotonic()
    caught_by = None
    with checkout.mutated(site):
        for batch in recorded.batches(site):
            caught_by = _failing(batch, checkout, recorded)
            if caught_by is not None:
                break
    return Verdict(site, caught_by, time.monotonic() - began_s)


def _failing(batch: Sequence[str], checkout: Checkout, recorded: Evidence) -> str | None:
    """The first test of a batch that fails, or what else ends the run; None if all pass."""
    known_s = recorded.seconds(batch)
    test_s = _TEST_S + round(_SLOWER * max(known_s, default=0))
    try:
        code, output = checkout.run(
            ["pytest"],
            ["-x", "--timeout", str(test_s), *batch],
            _RUN_S + _SLOWER * sum(known_s),
        )
    except subprocess.TimeoutExpired:
        return _HANGS
    if code in _PASSED:
        return None
    failing = _FAILING.search(output, max(output.rfind(_SUMMARY), 0))
    return test_of(failing[1]) if failing else f"exit code {code} of pytest"


def _folder(caught_by: str, folders: Sequence[str]) -> str:
    return next((folder for folder in folders if caught_by.startswith(f"{folder}/")), caught_by)


def _print_counts(verdicts: Sequence[Verdict], folders: Sequence[str]) -> None:
    catchers = Counter(_folder(each.caught_by, folders) for each in verdicts if each.caught_by is not None)
    print()
    for name, count in catchers.most_common():
        print(f"caught by {name}: {count}")
    survivors = [verdict.site for verdict in verdicts if verdict.caught_by is None]
    print(f"survived: {len(survivors)}")
    for site in survivors:
        print(f"  {site}")
    print(f"{_percent(verdicts):.1f} % of {len(verdicts)} mutants caught")


def _percent(verdicts: Sequence[Verdict]) -> float:
    return 100 * sum(verdict.caught_by is not None for verdict in verdicts) / len(verdicts)


def _as_json(verdicts: Sequence[Verdict], options: argparse.Namespace) -> str:
    mutants = [
        {
            "mutant": str(verdict.site),
            "kind": verdict.site.kind,
            "caught_by": verdict.caught_by,
            "seconds": round(verdict.seconds, 1),
        }
        for verdict in verdicts
    ]
    head = {"seed": options.seed, "only": options.only, "folders": options.folders}
    return json.dumps({**head, "caught_percent": _percent(verdicts), "mutants": mutants}, indent=1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Draw mutants of the code and count how many the tests catch.",
    )
    parser.add_argument(
        "folders", nargs="*", default=FOLDERS, help="folders of tests, in the order to run them"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="the same seed and code draw the same mutants")
    parser.add_argument("--count", type=int, default=60, help="how many mutants to draw")
    parser.add_argument("--only", default="", metavar="PATH", help="part of the path of the files to change")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and run none")
    parser.add_argument("--least", type=float, metavar="PERCENT", help="exit code 1 if fewer are caught")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    options = parser.parse_args()
    options.folders = [Path(folder).as_posix() for folder in options.folders]
    return options


def main() -> int:
    """Print a line for each mutant as it is decided, then the counts."""
    options = _options()
    sites = drawn(all_sites(ROOT, options.only), options.seed, options.count)
    if not sites:
        print(f"no mutants: no file of the code has {options.only!r} in its path", file=sys.stderr)
        return 2
    if options.list:
        print(*sites, sep="\n")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the tests end and the copy is removed
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        checkout = Checkout(Path(scratch), options.seed)
        recorded = evidence(checkout, options.folders)
        if recorded.failed:
            print(f"left out, because they fail without a mutant: {', '.join(sorted(recorded.failed))}")
        verdicts = []
        for site in sites:
            verdicts.append(judge(site, checkout, recorded))
            print(verdicts[-1], flush=True)
    _print_counts(verdicts, options.folders)
    if options.json:
        options.json.write_text(_as_json(verdicts, options), encoding="utf-8")
    return int(options.least is not None and _percent(verdicts) < options.least)


if __name__ == "__main__":
    sys.exit(main())
