"""Which period a text names, seen from 2026-11-21 05:40:00 UTC, a Saturday."""

from __future__ import annotations

import pytest

from kquota_spark.reports.scope.period import EXPECTED, Period, parse_period
from tests.support.tables.table_rows import T0_MS

MIDNIGHT_MS = T0_MS - (5 * 60 + 40) * 60_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "from_ms", "to_ms"),
    [
        ("day", MIDNIGHT_MS - DAY_MS, MIDNIGHT_MS),
        ("week", MIDNIGHT_MS - 7 * DAY_MS, MIDNIGHT_MS),
        ("today", MIDNIGHT_MS, T0_MS),
        ("last:2h", T0_MS - 7_200_000, T0_MS),
        ("last:90s", T0_MS - 90_000, T0_MS),
        ("2026-11-20..2026-11-20", MIDNIGHT_MS - DAY_MS, MIDNIGHT_MS),
        ("2026-11-19..2026-11-20", MIDNIGHT_MS - 2 * DAY_MS, MIDNIGHT_MS),
        ("2026-11-21T05:00..2026-11-21T05:40:00Z", T0_MS - 2_400_000, T0_MS),
        (" 2026-11-21T06:40+01:00..2026-11-21T05:41 ", T0_MS, T0_MS + 60_000),
    ],
)
def test_a_text_names_a_period(text: str, from_ms: int, to_ms: int) -> None:
    assert parse_period(text, T0_MS) == Period(from_ms, to_ms)


@pytest.mark.parametrize("text", ["", "yesterday", "last:2w", "2026-11-20", "2026-11-20..", "..", "a..b"])
def test_what_is_no_period_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected day") as refused:
        parse_period(text, T0_MS)
    assert str(refused.value) == f"{text!r}: {EXPECTED}"


@pytest.mark.parametrize("text", ["2026-11-21..2026-11-20", "last:0s", "last:999999d"])
def test_a_period_without_length_or_before_1970_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is an empty period, or outside"):
        parse_period(text, T0_MS)
