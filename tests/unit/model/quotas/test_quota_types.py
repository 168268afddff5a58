"""What a quota type counts is stated once, and every unit follows from it."""

from __future__ import annotations

import pytest

from kquota_spark.cli.explain.command import _UNITS as EXPLAINED
from kquota_spark.formats.text.person_units import amount_text, rate_text
from kquota_spark.model.quotas.quota_types import (
    BANDWIDTH,
    BYTE_RATES,
    COUNTED,
    TYPES,
    Counted,
    QuotaKey,
    QuotaType,
)
from kquota_spark.pipeline.jmx.judge import _RATES as OF_JMX
from kquota_spark.reports.exported.metrics import _UNITS as EXPORTED


def test_types_are_those_of_the_managers_and_of_ips() -> None:
    assert TYPES == ("produce", "fetch", "request", "controller_mutation", "connection")
    assert BANDWIDTH == (QuotaType.PRODUCE, QuotaType.FETCH)
    assert BYTE_RATES == (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)


def test_whatever_is_counted_has_a_unit_in_each_output() -> None:
    assert set(EXPORTED) == set(OF_JMX) == set(Counted)
    assert set(EXPLAINED) == {COUNTED[quota_type] for quota_type in QuotaType}


@pytest.mark.parametrize(
    ("quota_type", "rate", "amount"),
    [
        ("produce", "2.0 MB/s", "2.0 MB"),
        ("fetch", "2.0 MB/s", "2.0 MB"),
        ("request", "2e+06 %", "2.00 s"),
        ("controller_mutation", "2e+06/s", "2,000,000"),
        ("connection", "2e+06/s", "2,000,000"),
    ],
)
def test_a_rate_and_an_amount_have_the_unit_of_their_type(quota_type: str, rate: str, amount: str) -> None:
    assert (rate_text(quota_type, 2e6), amount_text(quota_type, 2_000_000)) == (rate, amount)
