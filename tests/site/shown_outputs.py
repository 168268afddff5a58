"""Commands that pages show with their output: run again, compared, and written anew.

`python -m tests.site.shown_outputs` writes the outputs of today into the pages.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.site.page_tables import write_page_tables
from tests.support.logs.replayed_captures import run
from tests.support.places import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "kquota_spark" / "docs").glob("*.md")))
CUT = "    ..."
"""A line that stands for lines of the output which a page leaves out."""
_CONSOLE = re.compile(r"^```console\n\$ (kquota [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^<!-- output: (kquota [^\n]*) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AGE = re.compile(r"[\d.,]+ \w+( behind| ago)")
_LINKED = ("conf", "kquota_spark", "tests")


class Shown(NamedTuple):
    """A command of a page and the output that stands below it."""

    page: Path
    command: str
    output: str


def shown_outputs() -> list[Shown]:
    """Every command with an output, in the order of the pages."""
    return [*_found()]


def _found() -> Iterator[Shown]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for pattern in (_CONSOLE, _MARKED):
            yield from (Shown(page, *match.groups()) for match in pattern.finditer(text))


def output_of(command: str) -> str:
    """What a command prints in the working directory, with the file names that a shell makes of its patterns."""
    arguments = []
    for word in shlex.split(command)[1:]:
        files = sorted(str(path) for path in Path().glob(word)) if "*" in word else []
        arguments += files or [word]
    _, out, err = run(arguments)
    lines = (out + re.sub(r"^[\w.-]+: [\d,]+ lines\n", "", err, flags=re.MULTILINE)).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def without_age(output: str) -> str:
    """The output without the numbers that grow with the time since the tables were written."""
    return _AGE.sub(r"n\1", output)


def is_shown(whole: str, shown: str) -> bool:
    """Whether a page shows the whole output, or parts of it in their order with `CUT` between them."""
    parts = without_age(shown).split(f"{CUT}\n")
    rest = without_age(whole)
    if len(parts) == 1:
        return rest == parts[0]
    if not rest.startswith(parts[0]) or not rest.endswith(parts[-1]):
        return False
    for part in filter(None, parts):
        _, found, rest = rest.partition(part)
        if not found:
            return False
    return True


@contextlib.contextmanager
def checkout_with_tables(folder: Path) -> Iterator[Path]:
    """A folder that looks like a checkout in which the commands of the pages can run; the working directory."""
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    write_page_tables(folder)
    with contextlib.chdir(folder):
        run(["try"])
        yield folder


def write_outputs(left_out: Sequence[str]) -> list[str]:
    """Write the outputs of today into the pages; the commands whose shown parts have to be chosen by hand."""
    by_hand = []
    for shown in shown_outputs():
        if shown.command in left_out:
            continue
        output = output_of(shown.command)
        if is_shown(output, shown.output):
            continue
        if f"{CUT}\n" in shown.output:
            by_hand.append(f"{shown.page.name}: {shown.command}")
            continue
        text = shown.page.read_text(encoding="utf-8")
        for between in ("\n", " -->\n```text\n"):
            old, new = (f"{shown.command}{between}{each}```" for each in (shown.output, output))
            text = text.replace(f"$ {old}", f"$ {new}").replace(f"output: {old}", f"output: {new}")
        shown.page.write_text(text, encoding="utf-8")
    return by_hand


NOT_RUN = (
    # Shown on a terminal: tests/programs/test_top_terminal.py compares its screens with the page.
    "kquota top --tables tests/data/tables-0.1/tables",
    # They need a cluster: tests/unit/docs/test_enforcement_outputs.py runs them with one in memory.
    "kquota enforce plan",
    "kquota alter --user alice --add producer_byte_rate=800000 --dry-run",
)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, checkout_with_tables(Path(made)):
        for left in write_outputs(NOT_RUN):
            print(f"choose the shown parts by hand: {left}", file=sys.stderr)
