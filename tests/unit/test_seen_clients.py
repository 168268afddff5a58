"""Whether usage tells of all clients, or of some brokers only what JMX knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.io.tables import open_tables
from kquota_spark.reports.seen_clients import is_sampled
from tests.unit.table_rows import T0_MS, usage, write_table


@pytest.mark.parametrize(
    ("of_jmx", "sampled"),
    [
        (None, False),
        ({}, False),  # the same broker and type: the log tells of all
        ({"broker_id": 2}, True),
        ({"quota_type": "fetch"}, True),
        ({"quota_type": "request"}, False),  # no bandwidth: rules are not judged by it
        ({"broker_id": 2, "cluster_id": "other"}, False),
    ],
)
def test_usage_is_sampled_where_no_log_tells_of_a_broker_and_type(
    tmp_path: Path, of_jmx: dict[str, Any] | None, sampled: bool
) -> None:
    rows = [] if of_jmx is None else [usage(amount=None, requests=None, source="jmx", **of_jmx)]
    write_table(tmp_path, "usage", usage(), *rows)
    with open_tables(Settings(tables=str(tmp_path)), "usage") as tables:
        assert is_sampled(tables, "demo", T0_MS) is sampled
