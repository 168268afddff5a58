"""`python -m tests.mutants.faults`: breaks the product once for each fault, and sees that the named test turns red.

`faults.yaml` names for each fault of the page one proof and one change of the product. The test has to pass without
the change and to fail with it. Otherwise it proves nothing. `--write` puts the changes into the page's last column.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.mutants.checkout import Checkout
from tests.mutants.sites import Site
from tests.support.chance import SEED
from tests.support.places import ROOT

DECLARED = Path(__file__).with_name("faults.yaml")
PAGE = ROOT / "kquota_spark" / "docs" / "faults.md"
_MOST_S = 1_800
"""Maximum seconds of one test."""
_FAILED = 1
"""pytest's exit code of tests that ran and failed."""
_ROW = re.compile(r"\| (F\d+) \| ")
_CELL = re.compile(r"(?<!\\) \| ")


class Breakage(NamedTuple):
    """One change of the product, and the test that notices it.

    Attributes:
        fault: its number, such as `F33`.
        test: pytest's node id.
        file: path below the checkout.
        was: text that the file has exactly once.
        becomes: what takes its place.
    """

    fault: str
    test: str
    file: str
    was: str
    becomes: str

    def site(self, source: bytes) -> Site:
        """The place in the file.

        Raises:
            ValueError: the file has the text never, or more than once.
        """
        was = self.was.encode()
        if source.count(was) != 1:
            raise ValueError(
                f"{self.fault}: {self.file} has {self.was!r} {source.count(was)} times, not once"
            )
        start = source.index(was)
        line = source.count(b"\n", 0, start) + 1
        return Site(
            self.file, start, start + len(was), line, "fault", self.was, self.becomes, (line, line), False
        )

    def cell(self) -> str:
        """The change as a cell of the page."""
        short = self.file.removeprefix("kquota_spark/")
        becomes = _code(self.becomes) if self.becomes.strip() else "nothing"
        return f"`{short}`: {_code(self.was)} → {becomes}"


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    one_line = " ".join(text.split())
    ticks = "``" if "`" in one_line else "`"
    return f"{ticks}{one_line}{ticks}".replace("|", "\\|")


def declared() -> list[Breakage]:
    """All breakages, in the order of the file."""
    given = yaml.safe_load(DECLARED.read_text(encoding="utf-8"))
    return [Breakage(fault, **values) for fault, values in given.items()]


def tried(each: Breakage, checkout: Checkout) -> str:
    """What the test says of the change: `red`, or why the change proves nothing."""
    if _code_of(each, checkout) != 0:
        return "void: the test fails without the change"
    with checkout.mutated(each.site((checkout.root / each.file).read_bytes())):
        code = _code_of(each, checkout)
    if code == _FAILED:
        return "red"
    return "GREEN: the test does not notice the change" if code == 0 else f"void: pytest ended with {code}"


def _code_of(each: Breakage, checkout: Checkout) -> int:
    try:
        code, _ = checkout.run(["pytest"], ["-x", each.test], _MOST_S)
    except subprocess.TimeoutExpired:
        return _FAILED
    return code


def written(page: str, breakages: Sequence[Breakage]) -> str:
    """The page with the changes in its fifth column; a fault without one has a dash."""
    cells = {each.fault: each.cell() for each in breakages}
    return "".join(_with_cell(line, cells) for line in page.splitlines(keepends=True))


def _with_cell(line: str, cells: Mapping[str, str]) -> str:
    found = _ROW.match(line)
    if found is None:
        return line
    first = _CELL.split(line.strip()[2:-2])[:4]
    return f"| {' | '.join([*first, cells.get(found[1], '-')])} |\n"


def main() -> int:
    """Print a line for each fault; 1 if a test does not notice its change."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.faults", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="such as F33; all without any")
    parser.add_argument("--write", action="store_true", help="write the page's last column, and run nothing")
    options = parser.parse_args()
    breakages = [each for each in declared() if not options.faults or each.fault in options.faults]
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), declared()), encoding="utf-8")
        return 0
    found = []
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        checkout = Checkout(Path(scratch), SEED)
        for each in breakages:
            began_s = time.monotonic()
            found.append(tried(each, checkout))
            print(f"{each.fault:4} {time.monotonic() - began_s:6.1f} s  {found[-1]}  {each.test}", flush=True)
    return int(any(one != "red" for one in found))


if __name__ == "__main__":
    sys.exit(main())
