"""The unit of a column follows from its name, for every table."""

from __future__ import annotations

import pytest

from kquota_spark.cli.text.columns import column
from kquota_spark.schema.tables import TABLES
from kquota_spark.schema.units import HEADINGS, Unit, unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("mean_rate_per_s", Unit.RATE), ("peak_quota_used_percent", Unit.PERCENT), ("delay_ms", Unit.MS),
        ("throttled_requests", Unit.REQUESTS), ("amount", Unit.AMOUNT), ("worst_broker_id", Unit.BROKER),
        ("quota_type", Unit.QUOTA_TYPE), ("start_time", Unit.TIME), ("first_second", Unit.TIME),
        ("record_time_ms", Unit.MS), ("rule", None), ("episodes", None), ("throttled_seconds", None),
    ],
)  # fmt: skip
def test_the_end_of_a_name_is_its_unit(name: str, unit: Unit | None) -> None:
    assert unit_of(name) is unit


def test_every_time_of_the_tables_and_nothing_else_is_a_time() -> None:
    wrong = [
        f"{table.name}.{one.name}"
        for table in TABLES
        for one in table.columns
        if one.is_time != (unit_of(one.name) is Unit.TIME)
    ]
    assert wrong == []


def test_only_quotas_what_jmx_reports_and_a_confidence_are_fractions_without_a_unit() -> None:
    """Their unit is that of a key of Kafka, or of a bean; a confidence is from 0 to 1."""
    names = {
        one.name
        for table in TABLES
        for one in table.columns
        if one.type == "double" and not unit_of(one.name)
    }
    assert names == {
        "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
        "connection_creation_rate", "value", "previous_value", "value_before", "value_after",
        "byte_rate", "mutation_rate", "connection_rate", "tokens", "confidence",
    }  # fmt: skip


def test_every_heading_is_of_a_column_with_a_unit() -> None:
    assert [name for name in HEADINGS if unit_of(name) in (None, Unit.TIME)] == []


def test_a_column_has_the_heading_of_its_name_and_what_is_explained_about_it() -> None:
    found = column("delay_ms", about="by brokers")
    assert (found.title, found.note) == ("total delay", "total delay: by brokers")
    other = column("mean_rate_per_s", "10 s mean")
    assert (other.title, other.note) == ("10 s mean", "")


def test_a_column_prints_in_the_unit_of_its_name() -> None:
    row = {
        "quota_type": "controller_mutation", "limit_per_s": 5.0, "quota_used_percent": None, "delay_ms": 2_029,
        "requests": 2_564, "amount": 12, "broker_id": -1, "charged_bytes": 1_234_000, "user": "",
    }  # fmt: skip
    assert [column(name, name).text(row) for name in row] == [
        "mutation", "5/s", "-", "2.03 s", "2,564", "12", "ctl", "1.2 MB", '""'
    ]  # fmt: skip
    assert column("limit_per_s", "limit", quota_type="produce").text({"limit_per_s": 300_000.0}) == "300 kB/s"
    for name in ("rule", "second"):
        with pytest.raises(KeyError, match=f"{name}: no unit"):
            column(name, name)
