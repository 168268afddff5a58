"""The figures of the page on accuracy are those of a replay of the captures, now."""

from __future__ import annotations

import re

from tests.site.accuracy import rows, totals
from tests.support.places import ROOT

PAGE = (ROOT / "kquota_spark" / "docs" / "accuracy.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_per_capture_is_that_of_a_replay() -> None:
    section = PAGE[PAGE.index("## Per capture") :]
    assert re.findall(r"^\| [\w-]+: .*$", section, re.MULTILINE) == rows()


def test_the_sums_of_the_page_and_of_the_readme_are_those_of_the_captures() -> None:
    agreeing, judged, uncertain = totals()
    text = " ".join(PAGE.split())
    assert f"{agreeing:,} of {judged:,} certain produce verdicts" in text
    assert (
        f"That is {100 * agreeing / judged:.3f} %. Of all verdicts {100 * uncertain / (judged + uncertain):.2f} %"
        in text
    )
    assert f"{100 * agreeing / judged:.2f} % of the certain verdicts agree" in " ".join(README.split())
