"""A request without a line shows as a gap of the ids on one connection; what lies between two connections is none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.findings.agreement_causes import Cause
from kquota_spark.reports.agreement.agreement_evidence import drops
from kquota_spark.reports.agreement.span import ALWAYS
from tests.support.tables.table_rows import decision, request, write_table

OLD, NEW, OTHER = (f"10.0.0.9:9092-10.0.0.4:{port}-3" for port in (5_001, 5_002, 5_003))


def on(connection: str, ids: Iterable[int]) -> list[tuple[str, int]]:
    return [(connection, correlation_id) for correlation_id in ids]


@pytest.mark.parametrize(
    ("lines", "expected", "missing"),
    [
        (on(OLD, range(1, 101)), 99, 0),
        # 50 of the 99 ids after the first have no line
        (on(OLD, (1, *range(52, 101))), 99, 50),
        # 1,000 ids were spent on the way to the broker: on requests that did not arrive, or on other brokers
        (on(OLD, range(1, 51)) + on(NEW, range(1_051, 1_101)), 49 + 49, 0),
        (on(OLD, (1, 2, 5)) + on(NEW, (1_051, 1_053)), 4 + 2, 2 + 1),
        # One counter for all connections of a client, as in Java: 3 was sent on the other one.
        (on(OLD, (1, 2, 4, 6)) + on(OTHER, (3, 5)), 1, 0),
        # The old connection lives on while another one comes back.
        (on(OLD, (1, 2, 9)) + on(OTHER, (3, 4)) + on(NEW, (7, 8)), 1 + 1 + 1, 0),
        # A counter for each connection, as in kafka-python
        (on(OLD, (1, 2, 4)) + on(OTHER, (1, 2, 4)), 3, 1),
    ],
)  # fmt: skip
def test_gaps_count_inside_one_connection_only(
    tmp_path: Path, lines: list[tuple[str, int]], expected: int, missing: int
) -> None:
    rows = [
        request(offset, connection=connection, correlation_id=correlation_id)
        for offset, (connection, correlation_id) in enumerate(lines)
    ]
    write_table(tmp_path, "requests", *rows)
    write_table(tmp_path, "decisions", decision(requests_judged=100, false_negative=40))
    [drop] = drops(Settings(cluster_id="demo", tables=str(tmp_path)), ALWAYS)
    assert (drop.evidence.lines_expected, drop.evidence.lines_missing) == (expected, missing)
    assert [found.cause for found in drop.causes] == [Cause.MISSING_LINES if missing else Cause.UNKNOWN]
