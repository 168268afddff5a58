"""Usage with its points: a caller that names parts of it gets their rows and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.clients.stored_usage import UsagePart, stored_usage
from tests.support.tables.table_rows import T0_MS, usage, write_table

POINT = Point(T0_MS, T0_MS, 1, 1, 1_000, 0, PointKind.REQUEST, 0)
PRODUCE = QuotaType.PRODUCE.value
NAMES = (("alice", "etl"), ("alice", "web"), ("bob", "etl"), ("bob", "web"))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([UsagePart(PRODUCE, "alice", "", T0_MS)], [("alice", "etl"), ("alice", "web")]),
        ([UsagePart(PRODUCE, "", "etl", T0_MS)], [("alice", "etl"), ("bob", "etl")]),
        ([UsagePart(PRODUCE, "alice", "etl", T0_MS)], [("alice", "etl")]),
        ([UsagePart(PRODUCE, "", "", T0_MS)], list(NAMES)),
        (
            [UsagePart(PRODUCE, "alice", "web", T0_MS), UsagePart(PRODUCE, "", "etl", T0_MS)],
            [("alice", "etl"), ("alice", "web"), ("bob", "etl")],
        ),
        ([UsagePart(PRODUCE, "alice", "", T0_MS + 1_000)], []),
        ([UsagePart(PRODUCE, "alice", "", T0_MS - 1_000, T0_MS)], []),
        ([UsagePart(QuotaType.FETCH.value, "alice", "", T0_MS)], []),
        ([UsagePart(PRODUCE, "nobody", "", T0_MS)], []),
    ],
)
def test_a_part_has_the_rows_of_its_names_type_and_period(
    tmp_path: Path, parts: list[UsagePart], expected: list[tuple[str, str]]
) -> None:
    rows = [usage(user=user, client_id=client_id, points=[POINT._asdict()]) for user, client_id in NAMES]
    write_table(tmp_path, "usage", *rows)
    settings = Settings(tables=str(tmp_path), cluster_id=str(rows[0]["cluster_id"]))
    found = stored_usage(settings, T0_MS, T0_MS + 1_000, parts=parts)
    assert sorted((row.principal.name, row.client_id) for row in found) == expected
