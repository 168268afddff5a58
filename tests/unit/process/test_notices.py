"""Lines of programs that run for days begin with the time of day; those of progress are few."""

from __future__ import annotations

import re

import pytest

from kquota_spark.process.notices import notice_with_time, spaced_notice


def test_a_line_begins_with_the_time_of_day(capsys: pytest.CaptureFixture[str]) -> None:
    notice_with_time("starting Spark")
    assert re.fullmatch(r"\d\d:\d\d:\d\d starting Spark\n", capsys.readouterr().err)


def test_a_spaced_notice_is_printed_when_it_is_due(capsys: pytest.CaptureFixture[str]) -> None:
    due, not_due = spaced_notice(-1), spaced_notice(3_600)
    for number in (1, 2):
        due(f"{number},000 lines read")
        not_due("never printed")
    assert capsys.readouterr().err == "1,000 lines read\n2,000 lines read\n"
