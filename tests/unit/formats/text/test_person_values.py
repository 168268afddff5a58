"""A value that people type with a unit is read as the number that `person_units` prints so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.formats.quota_files.quota_file import parse_quotas, quota_value
from kquota_spark.formats.text.person_units import quota_text, quota_texts
from kquota_spark.formats.text.person_values import number_with_unit
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

_SETTINGS = settings(deadline=None, print_blob=True)
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUEST, MUTATION = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTION = IpQuotaKey.CONNECTION_CREATION_RATE


@pytest.mark.parametrize(
    ("key", "text", "number"),
    [
        (PRODUCE, "2MB/s", 2_000_000.0),
        (PRODUCE, "2MB", 2_000_000.0),
        (FETCH, "2 MB/s", 2_000_000.0),
        (PRODUCE, "500kB/s", 500_000.0),
        (PRODUCE, "1.5MiB/s", 1_572_864.0),  # 1.5 * 2^20
        (PRODUCE, "1KiB/s", 1_024.0),
        (PRODUCE, "0.5KiB/s", 512.0),
        (PRODUCE, "3GB/s", 3e9),
        (PRODUCE, "1TiB", 1_099_511_627_776.0),  # 2^40
        (PRODUCE, "1,048,577 B/s", 1_048_577.0),
        (PRODUCE, "1.234567MB/s", 1_234_567.0),
        (REQUEST, "200%", 200.0),
        (REQUEST, "12.5 %", 12.5),
        (MUTATION, "10/s", 10.0),
        (MUTATION, "0.5/s", 0.5),
        (CONNECTION, "10/s", 10.0),
        (PRODUCE, "2000000", 2_000_000.0),
        (PRODUCE, "2e6", 2_000_000.0),
        (REQUEST, "200", 200.0),
        (CONNECTION, "10", 10.0),
    ],
)
def test_a_value_with_a_unit_or_plain_is_in_kafkas_unit(key: AnyKey, text: str, number: float) -> None:
    assert quota_value(key, text) == number


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PRODUCE, "2mb/s"),
        (PRODUCE, "2Mb/s"),  # megabits
        (PRODUCE, "2KB/s"),  # 1,000 or 1,024?
        (PRODUCE, "2M"),
        (PRODUCE, "2MB/h"),
        (PRODUCE, "2  MB/s"),
        (PRODUCE, " 2MB/s"),
        (PRODUCE, "-2MB/s"),
        (PRODUCE, "1,00B/s"),
        (PRODUCE, "1_000B/s"),
        (PRODUCE, "\u0662MB/s"),
        (PRODUCE, "MB/s"),
        (PRODUCE, "200%"),
        (PRODUCE, "10/s"),
        (PRODUCE, "1e999B/s"),
        (PRODUCE, "1" * 60 + "B/s"),
        (REQUEST, "2MB/s"),
        (REQUEST, "10/s"),
        (MUTATION, "200%"),
        (CONNECTION, "2B/s"),
    ],
)
def test_a_unit_that_does_not_fit_the_key_is_no_number(key: AnyKey, text: str) -> None:
    assert number_with_unit(key, text) is None
    with pytest.raises(ValueError, match="number"):
        quota_value(key, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1.0000005MB/s", "whole bytes per second, and this is 1,000,000.5"),
        ("0.5B", "whole bytes per second, and this is 0.5"),
        ("0.1KiB/s", "whole bytes per second, and this is 102.4"),  # 0.1 * 1,024
    ],
)
def test_decimals_must_give_whole_bytes(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        quota_value(PRODUCE, text)
    assert str(refused.value) == problem


def test_a_value_above_the_largest_of_its_key_is_refused_with_a_unit_too() -> None:
    assert quota_value(PRODUCE, "9000000TB/s") == 9e18
    with pytest.raises(ValueError, match="a whole number of bytes per second, 9223372036854775808 or less"):
        quota_value(PRODUCE, "10000000TB/s")
    with pytest.raises(ValueError, match="a whole number of connections per second, 0 or more"):
        quota_value(CONNECTION, "1.5/s")


@_SETTINGS
@given(
    st.sampled_from((PRODUCE, FETCH)),
    st.integers(1, 999),
    st.sampled_from((1, 10**3, 10**6, 10**9, 10**12)),
    st.integers(0, 9),
)
def test_a_printed_byte_rate_of_few_digits_is_read_as_it_was(
    key: QuotaKey, digits: int, unit: int, tenths: int
) -> None:
    # Below 100 of a unit, the print has one decimal.
    rate = digits * unit + (tenths * unit // 10 if digits < 100 else 0)
    assert quota_value(key, quota_text(key, float(rate))) == rate


@_SETTINGS
@given(st.sampled_from((PRODUCE, FETCH)), st.integers(1, 2**53 - 2))
def test_byte_rates_that_are_printed_exactly_are_read_as_they_were(key: QuotaKey, rate: int) -> None:
    values = (float(rate), float(rate + 1))
    texts = quota_texts(key, *values)
    # Texts that differ after rounding were rounded; only those in whole bytes have all digits.
    exact = [(value, text) for value, text in zip(values, texts, strict=True) if text.endswith(" B/s")]
    assert [quota_value(key, text) for _, text in exact] == [value for value, _ in exact]


@_SETTINGS
@given(st.sampled_from((REQUEST, MUTATION)), st.floats(0.001, 1e9))
def test_other_rates_that_are_printed_exactly_are_read_as_they_were(key: QuotaKey, rate: float) -> None:
    values = (
        rate,
        math.nextafter(rate, math.inf),
    )  # rounded to four digits they are equal, so all digits are shown
    assert tuple(quota_value(key, text) for text in quota_texts(key, *values)) == values


@_SETTINGS
@given(st.sampled_from((REQUEST, MUTATION)), st.integers(1, 9_999))
def test_rates_of_four_digits_are_read_as_they_were(key: QuotaKey, rate: int) -> None:
    assert quota_value(key, quota_text(key, float(rate))) == rate


def test_a_quota_file_takes_units() -> None:
    text = """
    - {user: alice, type: producer_byte_rate, value: 2MB/s}
    - {user: alice, type: request_percentage, value: 200%}
    - {ip: 10.0.0.1, type: connection_creation_rate, value: 10/s}
    """
    found = parse_quotas(text)
    assert [change.value for change in found.changes] == [2_000_000.0, 200.0]
    assert [limit.connections_per_s for limit in found.ip_limits] == [10]
    with pytest.raises(
        ValueError, match=r"\[0\]\.value: '2KB/s', expected a whole number of bytes per second"
    ):
        parse_quotas("[{user: a, type: producer_byte_rate, value: 2KB/s}]")
