"""Lines of programs that run for days begin with the time of day."""

from __future__ import annotations

import re

import pytest

from kquota_spark.process.notices import notice_with_time


def test_a_line_begins_with_the_time_of_day(capsys: pytest.CaptureFixture[str]) -> None:
    notice_with_time("starting Spark")
    assert re.fullmatch(r"\d\d:\d\d:\d\d starting Spark\n", capsys.readouterr().err)
