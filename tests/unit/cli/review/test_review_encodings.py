"""Files that differ only in their encoding give no alarm: 200 drawn pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reviews.encodings import alarms, drawn_quotas, encoded
from tests.support.chance import Chance
from tests.support.programs.command_output import run

PAIRS = 200


@pytest.mark.timeout(180)
def test_another_encoding_of_the_same_quotas_is_no_change(tmp_path: Path, chance: Chance) -> None:
    found = alarms(chance, PAIRS, tmp_path)
    assert found.found == []
    assert found.same < PAIRS / 4, "most pairs differ as texts"


def test_one_other_value_in_another_encoding_is_a_change(tmp_path: Path, chance: Chance) -> None:
    quotas = drawn_quotas(chance)
    entity, values = next(iter(quotas.items()))
    other = {**quotas, entity: {key: value + 1 for key, value in values.items()}}
    for name, text in (("base", encoded(chance, quotas)), ("head", encoded(chance, other))):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    (tmp_path / "tables").mkdir()
    words = (
        "--base",
        str(tmp_path / "base"),
        "--head",
        str(tmp_path / "head"),
        "--tables",
        str(tmp_path / "tables"),
    )
    code, out, _ = run("review", *words)
    assert (code, "#### Changed rules" in out) == (2, True)
