"""The page of faults has every fault, no empty cell, and every test that it names is there."""

from __future__ import annotations

import ast
import re

from tests.support.places import ROOT

PAGE = ROOT / "kquota_spark" / "docs" / "faults.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| F")
]
PROOF = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(tests/[\w/]+\.py)\)")


def test_all_65_faults_are_there_and_no_cell_is_empty() -> None:
    assert [number for number, *_ in ROWS] == [f"F{number}" for number in range(1, 66)]
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []
    assert len({fault for _, fault, _, _ in ROWS}) == 65


def test_every_proof_is_a_test() -> None:
    found = [(number, PROOF.findall(proofs)) for number, _, _, proofs in ROWS]
    assert [number for number, proofs in found if not proofs] == []
    proofs = {proof for _, of_row in found for proof in of_row}
    assert len(proofs) > 80
    missing = [
        (name, file) for name, file in proofs if f"test_{name.replace(' ', '_')}" not in _tests_of(file)
    ]
    assert missing == []


def _tests_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
