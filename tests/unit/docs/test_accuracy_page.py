"""The figures of the page on accuracy are those of a replay of the captures, now."""

from __future__ import annotations

import re
from pathlib import Path

from kquota_spark.model.measure.sampled_rate import RateConfig
from tests.site.accuracy import rows, totals
from tests.site.shown_outputs import is_shown
from tests.support.logs.captures import ZK39_PLAIN
from tests.support.logs.replayed_captures import run
from tests.support.places import ROOT
from tests.support.tables.capture_tables import write_capture

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


def test_the_likely_cause_of_the_page_on_verdicts_is_found_in_the_capture(tmp_path: Path) -> None:
    page = (ROOT / "kquota_spark" / "docs" / "verdicts.md").read_text(encoding="utf-8")
    [shown] = re.findall(
        r"<!-- of tests/unit/docs/test_accuracy_page.py -->\n```text\n(.*?)```", page, re.DOTALL
    )
    write_capture(tmp_path, ZK39_PLAIN, RateConfig())
    settings = tmp_path / "kquota.yaml"
    settings.write_text(f"cluster_id: test\ntables: {tmp_path}\n", encoding="utf-8")
    code, out, err = run(["agreement", "--by", "type", "--config", str(settings)])
    assert (code, err) == (0, "") and is_shown(out, shown), out
