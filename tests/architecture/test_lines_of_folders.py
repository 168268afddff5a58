"""A reminder: a folder that grows has its new number of lines in the table, in the same commit."""

from __future__ import annotations

from collections import Counter

import yaml

from tests.support.places import ROOT

PACKAGE = ROOT / "kquota_spark"
TABLE = ROOT / "tests" / "architecture" / "lines_of_folders.yaml"
SPARE_LINES = 100
"""Lines that a folder may have fewer than its number, before the number has to follow."""


def lines_by_folder() -> dict[str, int]:
    """Lines of Python in each folder of the package, subfolders included; files beside them are in `.`."""
    found = Counter[str]()
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).parts
        found[parts[0] if len(parts) > 1 else "."] += len(file.read_text(encoding="utf-8").splitlines())
    return dict(sorted(found.items()))


def test_no_folder_has_more_lines_than_the_table_says() -> None:
    written: dict[str, int] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    grown = {name: lines for name, lines in lines_by_folder().items() if lines > written.get(name, 0)}
    assert grown == {}, (
        f"worth reading for ever? Then put the numbers into {TABLE.name}, with the reason in the commit"
    )


def test_the_table_follows_a_folder_that_shrinks() -> None:
    written: dict[str, int] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    there = lines_by_folder()
    assert {name: lines for name, lines in written.items() if lines > there.get(name, 0) + SPARE_LINES} == {}
