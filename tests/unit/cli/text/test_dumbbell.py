"""A dumbbell chart: where its marks stand, and that it fits."""

from __future__ import annotations

import pytest

from kquota_spark.cli.text.dumbbell import ASCII, DRAWN, Dumbbell, dumbbells
from kquota_spark.formats.text.escape import width
from kquota_spark.formats.text.person_units import person_ms

LINES = (
    Dumbbell("produce bob", 10_000, 4_000),
    Dumbbell("fetch bob", 0, 5_000),
    Dumbbell("same", 5_000, 5_000),
    Dumbbell("gone", 10_000, None),
    Dumbbell("new", None, 10_000),
)


def test_marks_stand_in_proportion_to_the_largest_value() -> None:
    # 24 columns: names get 8 at the most, two blanks, 14 cells from 0 to 10 s. 4 s of 10 s: 0.4 x 13 = 5.2.
    assert list(dumbbells(LINES, 24, ASCII, person_ms)) == [
        "produ…ob       *-------o",
        "fetch…ob  o-----*",
        "same            @",
        "gone                   o",
        "new                    *",
        "          0       10.0 s",
    ]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_fills_the_width_and_no_more(columns: int) -> None:
    drawn = list(dumbbells(LINES, columns, DRAWN, person_ms))
    assert max(map(width, drawn)) == columns
    assert len(drawn) == len(LINES) + 1
