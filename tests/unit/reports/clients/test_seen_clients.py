"""Whether usage tells of all clients, or of some brokers only what JMX knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.model.compare.observed_clients import Seen
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.clients.seen_clients import ClientSeen, clients_seen, is_sampled
from kquota_spark.store.reading import open_tables
from tests.support.tables.table_rows import T0_MS, usage, write_table


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


def test_clients_are_summed_over_brokers(tmp_path: Path) -> None:
    more = {"observed_throttle_ms": 7, "broker_id": 2}
    not_asked: tuple[dict[str, Any], ...] = (
        {"source": "jmx"}, {"cluster_id": "other"}, {"quota_type": "request"}
    )  # fmt: skip
    rows = [usage(n, amount=50, observed_throttle_ms=3) for n in range(10)]
    write_table(
        tmp_path, "usage", *rows, usage(4, amount=100, **more), usage(5, user="bob", amount=1_000),
        *(usage(6, amount=9_999, **changed) for changed in not_asked),
    )  # fmt: skip
    alice, bob = ("alice", "etl", QuotaType.PRODUCE), ("bob", "etl", QuotaType.PRODUCE)
    of_bob = ClientSeen(Seen(*bob, 1_000), T0_MS + 5_000, T0_MS + 5_000)
    with open_tables(Settings(tables=str(tmp_path)), "usage") as tables:
        # 10 seconds of 50 bytes and 3 ms, and 100 bytes and 7 ms on the other broker.
        assert clients_seen(tables, "demo", 0) == [
            of_bob, ClientSeen(Seen(*alice, 600, 37), T0_MS, T0_MS + 9_000)
        ]  # fmt: skip
        # From second 3 until 5, exclusive: two of the ten, and that of the other broker.
        during = clients_seen(tables, "demo", T0_MS + 3_000, until_ms=T0_MS + 5_000)
        assert during == [ClientSeen(Seen(*alice, 200, 13), T0_MS + 3_000, T0_MS + 4_000)]
        assert clients_seen(tables, "demo", 0, user="bob") == [of_bob]
