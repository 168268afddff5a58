"""Which rows of `requests` a restatement reads."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from kquota_spark.audit.past.restate import requests_within
from kquota_spark.config.settings import Settings
from kquota_spark.store.reading import query
from tests.support.tables.table_rows import request, write_table

MIDNIGHT_MS = 1_795_305_600_000
"""2026-11-22 00:00:00 UTC."""
DAY_BEFORE, DAY = date(2026, 11, 21), date(2026, 11, 22)


def test_a_line_filed_under_the_day_before_by_a_clock_behind_is_in_the_period_of_its_time(
    tmp_path: Path,
) -> None:
    write_table(
        tmp_path,
        "requests",
        request(1, MIDNIGHT_MS - 1, event_date=DAY_BEFORE),
        # Read at 23:50 by the clock of the job's machine.
        request(2, MIDNIGHT_MS, event_date=DAY_BEFORE, is_out_of_time=True),
        request(3, MIDNIGHT_MS + 299_999, event_date=DAY_BEFORE, is_out_of_time=True),
        request(4, MIDNIGHT_MS + 299_999, event_date=DAY),
        request(5, MIDNIGHT_MS + 300_000, event_date=DAY),
    )
    within = requests_within(MIDNIGHT_MS, MIDNIGHT_MS + 300_000)
    asked = f"select kafka_offset from requests where {within} order by all"
    assert query(Settings(tables=str(tmp_path)), ["requests"], asked, []).rows == [(2,), (3,), (4,)]
