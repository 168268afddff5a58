"""A tenant's page gives the advice of docs/tenants.md whose evidence is in the tables, and no other."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.model.quotas.entities import Entity
from tests.support.reports.gathered_report import Row, gathered, rule, throttled
from tests.support.tables.table_rows import decision, request, usage

BASE: Row = {
    "quota_rules": [rule(Entity(user="alice"), producer_byte_rate=1e6)],
    "tenant": "alice",
    "seconds": 10,
}


def advised(root: Path, **rows: list[Row]) -> dict[str, str]:
    """What to do, and why; without the values to ask for."""
    page = gathered(root, **{**BASE, **rows})
    return {one.title: one.reason for one in page.recommendations if one.title}


def test_who_is_not_throttled_gets_none(tmp_path: Path) -> None:
    assert advised(tmp_path, decisions=[decision(1)], usages=[usage(1)]) == {}


def test_small_requests_are_to_be_batched(tmp_path: Path) -> None:
    # 60,000 bytes in 30 requests: 2,000 each
    rows = [usage(at_s, amount=20_000, requests=10) for at_s in range(3)]
    found = advised(tmp_path, decisions=[throttled(at_s) for at_s in range(9)], usages=rows)
    assert list(found) == ["Compress what you send", "Send fewer and larger requests"]
    assert found["Send fewer and larger requests"].startswith("your 30 requests had 2.0 kB on average.")
    assert found["Compress what you send"].startswith("you sent 60.0 kB, counted as it was sent.")


def test_large_ones_are_not_and_bursts_are_to_be_spread_out(tmp_path: Path) -> None:
    # 2,000,000 bytes in ten seconds are 20 % of 1,000,000 a second; throttled in two of the ten.
    rows = [usage(0, amount=2_000_000, requests=10)]
    found = advised(tmp_path, decisions=[throttled(0), throttled(1)], usages=rows)
    assert list(found) == ["Compress what you send", "Spread out what need not be now"]
    assert found["Spread out what need not be now"].startswith(
        "you were throttled in 20 % of the time, and used 20 % of the limit on average:"
    )


def test_a_request_above_ten_seconds_of_the_limit_is_too_large(tmp_path: Path) -> None:
    lines = [request(1, charged_bytes=10_000_001, observed_throttle_ms=31_000)]
    found = advised(
        tmp_path,
        decisions=[throttled(at_s) for at_s in range(9)],
        usages=[usage(0, amount=11_000_000, requests=1)],
        requests=lines,
    )
    assert list(found) == [
        "Compress what you send",
        "Keep a request below ten seconds of your limit",
        "Give it time",
    ]
    assert (
        "your largest had 10.0 MB, and ten seconds of 1.0 MB/s are 10.0 MB"
        in found["Keep a request below ten seconds of your limit"]
    )
    assert found["Give it time"].startswith("the longest pause was 31.0 s.")


def test_many_connections_and_no_name(tmp_path: Path) -> None:
    lines = [request(number, connection=f"c{number}") for number in range(101)]
    found = advised(
        tmp_path,
        decisions=[throttled(at_s) for at_s in range(9)],
        usages=[usage(0, client_id="", amount=5_000_000, requests=5)],
        requests=lines,
    )
    assert list(found) == ["Compress what you send", "Keep your connections", "Set a client.id"]
    assert found["Keep your connections"].startswith("you used 101.")
