"""The page of faults has every fault, no empty cell, and every test that it names is there."""

from __future__ import annotations

import ast
import re

from tests.mutants.faults import declared
from tests.support.places import ROOT

PAGE = ROOT / "kquota_spark" / "docs" / "faults.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| F")
]
PROOF = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(tests/[\w/]+\.py)\)")
FAULTS = 84
PLANNED = set[str]()
"""Faults without an answer yet; the page says so."""


def test_all_84_faults_are_there_and_no_cell_is_empty() -> None:
    assert [number for number, *_ in ROWS] == [f"F{number}" for number in range(1, FAULTS + 1)]
    assert [row for row in ROWS if len(row) != 5 or not all(row)] == []
    assert len({fault for _, fault, *_ in ROWS}) == FAULTS


def test_every_proof_is_a_test_and_every_fault_without_one_is_open() -> None:
    found = {number: PROOF.findall(proofs) for number, _, _, proofs, _ in ROWS}
    assert {number for number, proofs in found.items() if not proofs} == PLANNED
    assert {number for number, _, answer, *_ in ROWS if answer.startswith("*Open*")} == PLANNED
    proofs = {proof for of_row in found.values() for proof in of_row}
    missing = [
        (name, file) for name, file in proofs if f"test_{name.replace(' ', '_')}" not in _tests_of(file)
    ]
    assert missing == []


def test_every_proven_fault_has_a_change_of_the_code_that_one_of_its_proofs_notices() -> None:
    changes = {each.fault: each for each in declared()}
    assert changes.keys() == {number for number, *_ in ROWS} - PLANNED
    for number, _, _, proofs, cell in ROWS:
        if number not in changes:
            continue
        change = changes[number]
        file, _, name = change.test.partition("[")[0].partition("::")
        assert (name.removeprefix("test_").replace("_", " "), file) in PROOF.findall(proofs), number
        # The tool that breaks the code writes this cell, and refuses a text that the file has not exactly once.
        assert cell.replace("\\|", "|") == change.cell().replace("\\|", "|"), number
        assert change.site((ROOT / change.file).read_bytes()).was == change.was


def _tests_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
