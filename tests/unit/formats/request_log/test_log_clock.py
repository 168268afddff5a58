"""Broker-local times to epoch ms, and the moment the quota was charged."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfoNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.request_log.clock import (
    LogClock,
    SkippedTime,
    has_fetch_waited,
    has_produce_waited,
    record_time_ms,
)

NOON_UTC_MS = 1_732_104_000_000  # 2024-11-20 12:00:00 UTC


def test_utc() -> None:
    clock = LogClock()
    assert clock.epoch_ms(b"2024-11-20 12:00:00,123") == NOON_UTC_MS + 123
    assert clock.epoch_ms(b"2024-11-20 12:00:59,999") == NOON_UTC_MS + 59_999
    assert clock.epoch_ms(b"1970-01-01 00:00:00,000") == 0
    assert clock.epoch_ms(b"2024-02-29 00:00:00.000") == 1_709_164_800_000


@pytest.mark.parametrize(
    ("text", "in_utc"),
    [
        (b"2024-11-20 13:00:00,001", b"2024-11-20 12:00:00,001"),  # winter: one hour ahead
        (b"2024-07-01 14:00:00,000", b"2024-07-01 12:00:00,000"),  # summer: two
        (b"2024-03-31 01:59:59,999", b"2024-03-31 00:59:59,999"),  # the last before the clocks go forward
        (b"2024-03-31 03:00:00,000", b"2024-03-31 01:00:00,000"),
        (b"2024-10-27 02:30:00,000", b"2024-10-27 00:30:00,000"),  # there are two of it: the first is taken
        (b"2024-10-27 03:00:00,000", b"2024-10-27 02:00:00,000"),
    ],
)
def test_europe_berlin(text: bytes, in_utc: bytes) -> None:
    assert LogClock("Europe/Berlin").epoch_ms(text) == LogClock().epoch_ms(in_utc)


# 2026-10-25 in Berlin: 03:00 CEST (01:00 UTC) becomes 02:00 CET.
@pytest.mark.parametrize(
    ("text", "seen_in_utc", "in_utc"),
    [
        (b"2026-10-25 01:59:59,999", b"2026-10-25 05:00:00,000", b"2026-10-24 23:59:59,999"),
        (b"2026-10-25 02:00:00,000", b"2026-10-25 00:00:00,005", b"2026-10-25 00:00:00,000"),
        (b"2026-10-25 02:00:00,000", b"2026-10-25 01:00:00,005", b"2026-10-25 01:00:00,000"),
        (b"2026-10-25 02:30:00,500", b"2026-10-25 00:30:02,000", b"2026-10-25 00:30:00,500"),
        (b"2026-10-25 02:30:00,500", b"2026-10-25 01:30:02,000", b"2026-10-25 01:30:00,500"),
        # 59 minutes after the first, one before the second: no line is written more than a minute ahead
        (b"2026-10-25 02:30:00,500", b"2026-10-25 01:29:00,499", b"2026-10-25 00:30:00,500"),
        (b"2026-10-25 02:30:00,500", b"2026-10-25 01:29:00,500", b"2026-10-25 01:30:00,500"),
        (b"2026-10-25 02:59:59,999", b"2026-10-25 02:00:00,000", b"2026-10-25 01:59:59,999"),
        (b"2026-10-25 03:00:00,000", b"2026-10-25 02:00:00,001", b"2026-10-25 02:00:00,000"),
    ],
)
def test_the_hour_that_berlin_shows_twice(text: bytes, seen_in_utc: bytes, in_utc: bytes) -> None:
    clock, utc = LogClock("Europe/Berlin"), LogClock()
    for _ in range(2):  # from the zone, then from the cache
        assert clock.epoch_ms(text, utc.epoch_ms(seen_in_utc)) == utc.epoch_ms(in_utc)
    is_between = b"2026-10-25 02:00" <= text < b"2026-10-25 03:00"
    assert clock.is_shown_twice(text) == LogClock("Europe/Berlin").is_shown_twice(text) == is_between
    assert not utc.is_shown_twice(text)


# 2026-03-29 in Berlin: 02:00 CET (01:00 UTC) becomes 03:00 CEST.
def test_the_hour_that_berlin_skips_is_refused() -> None:
    clock, utc = LogClock("Europe/Berlin"), LogClock()
    assert clock.epoch_ms(b"2026-03-29 01:59:59,999") == utc.epoch_ms(b"2026-03-29 00:59:59,999")
    for text in (b"2026-03-29 02:00:00,000", b"2026-03-29 02:30:00,500", b"2026-03-29 02:59:59,999"):
        for _ in range(2):
            with pytest.raises(SkippedTime):
                clock.epoch_ms(text, utc.epoch_ms(b"2026-03-29 01:30:00,000"))
        assert not clock.is_shown_twice(text)
    assert clock.epoch_ms(b"2026-03-29 03:00:00,000") == utc.epoch_ms(b"2026-03-29 01:00:00,000")


def test_half_an_hour_is_shown_twice_on_lord_howe() -> None:
    # 2026-04-05: 02:00 at +11:00 (15:00 UTC) becomes 01:30 at +10:30.
    clock, utc = LogClock("Australia/Lord_Howe"), LogClock()
    text, seen_ms = b"2026-04-05 01:45:00,000", utc.epoch_ms(b"2026-04-04 15:15:00,010")
    assert clock.epoch_ms(text) == utc.epoch_ms(b"2026-04-04 14:45:00,000")
    assert clock.epoch_ms(text, seen_ms) == utc.epoch_ms(b"2026-04-04 15:15:00,000")
    assert not clock.is_shown_twice(b"2026-04-05 01:29:59,999")


def test_zones_that_are_no_whole_hours() -> None:
    # Kathmandu is 5:45 ahead.
    assert LogClock("Asia/Kathmandu").epoch_ms(b"2024-11-20 17:45:00,000") == NOON_UTC_MS


def test_no_such_zone() -> None:
    with pytest.raises(ZoneInfoNotFoundError):
        LogClock("Mars/Base")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"2024-11-20 12:00:00", b"2024-11-20 12:00:00,12", b"2024-11-20 12:00:00,1234",
        b"2024-11-20 12:00:60,000", b"2024-11-20 12:60:00,000", b"2024-11-20 24:00:00,000",
        b"2024-02-30 12:00:00,000", b"2024-13-20 12:00:00,000", b"2024-11-20T12:00:00,000",
        b"2024-11-20 12:00-00,000", b"2024-11-20 12:00:0x,000", b"2024-11-20 12:00:00,-12",
        b"2024-11-20 12:00: 1,000", b"0000-01-01 00:00:00,000", b"20\xff4-11-20 12:00:00,000",
        b"2024-11-2  12:00:00,000", b"2024-11-20 \x0b2:00:00,000", b"2024-11-20 12:00:00;000",
        b"2024-11-20 12:00:00,0 0",
        "\uff12024-11-20 12:00:0".encode(),
    ],
)  # fmt: skip
def test_what_is_no_time(text: bytes) -> None:
    clock = LogClock()
    for _ in range(2):  # the minute of some of them is good and may have been remembered
        with pytest.raises(ValueError):
            clock.epoch_ms(text)


def test_the_cache_answers_the_same_and_stays_small() -> None:
    clock = LogClock("Europe/Berlin")
    texts = [b"2024-%02d-%02d %02d:%02d:07,008" % (m, d, h, n)
             for m in (3, 10) for d in range(1, 29) for h in (0, 3, 23) for n in range(0, 60, 2)]  # fmt: skip
    assert len(texts) == 5_040
    first = [clock.epoch_ms(text) for text in texts]
    assert [clock.epoch_ms(text) for text in reversed(texts)] == first[::-1]
    assert len(clock._seconds) <= 4_096
    assert [LogClock("Europe/Berlin").epoch_ms(text) for text in texts[::500]] == first[::500]


@settings(deadline=None, print_blob=True)
@given(st.datetimes(), st.integers(0, 999))
def test_any_time_in_utc(moment: datetime, milli: int) -> None:
    text = f"{moment.replace(microsecond=0)},{milli:03}".encode()
    seconds = (moment.replace(microsecond=0) - datetime(1970, 1, 1)) // timedelta(seconds=1)  # noqa: DTZ001
    assert LogClock().epoch_ms(text) == seconds * 1_000 + milli


@pytest.mark.parametrize(
    ("log_ms", "send_ms", "queue_ms", "remote_ms", "has_waited", "expected"),
    [
        (1_000, 0.0, 0.0, 0.0, False, 1_000),
        (1_000, 1.25, 0.25, 2.0, False, 997),  # 996.5 + 0.5
        (1_000, 1.25, 0.25, 2.0, True, 999),  # 998.5 + 0.5
        (1_000, 0.75, 0.0, 0.0, False, 999),  # 999.25 + 0.5
        (1_000, 0.25, 0.0, 0.0, False, 1_000),  # 999.75 + 0.5
    ],
)
def test_record_time(
    log_ms: int, send_ms: float, queue_ms: float, remote_ms: float, has_waited: bool, expected: int
) -> None:
    assert record_time_ms(log_ms, send_ms, queue_ms, remote_ms, has_waited) == expected


@pytest.mark.parametrize("send_ms", [1e300, -1e300, 1_001.0, -2.6e14])
def test_a_record_time_that_no_column_holds(send_ms: float) -> None:
    with pytest.raises(OverflowError):
        record_time_ms(1_000, send_ms, 0.0, 0.0, False)


def test_who_has_waited() -> None:
    waits = [has_produce_waited(acks, remote_ms) for acks in (-1, 0, 1) for remote_ms in (4.999, 5.0)]
    assert waits == [False, True, False, False, False, False]
    assert [has_fetch_waited(remote_ms) for remote_ms in (49.999, 50.0)] == [False, True]
