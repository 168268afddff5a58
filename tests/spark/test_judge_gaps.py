"""JUDGE heeds gaps of a broker's log: in one, and until the ring remembers nothing from before its end."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota_spark.model.measure.points import CONTROLLER_ID, PointKind
from kquota_spark.schema.gap_tables import BROKER_START
from tests.support.spark.judged_usage import judged, settings_with_rules, used
from tests.support.spark.queries import CLUSTER
from tests.support.tables.table_rows import T0_MS, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_gap_makes_uncertain_until_the_ring_is_full_again(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_with_rules(tmp_path)
    first = dt.datetime.fromtimestamp(T0_MS / 1_000, dt.UTC)
    gap = {
        "cluster_id": CLUSTER, "broker_id": 1, "from_time": first + dt.timedelta(seconds=2),
        "to_time": first + dt.timedelta(seconds=4), "reason": "the shipper lost lines",
    }  # fmt: skip
    known = {**gap, "broker_id": 2, "reason": BROKER_START}
    write_table(Path(settings.tables), "log_gaps", gap, known, {**gap, "cluster_id": "another"})
    write_table(Path(settings.tables), "broker_configs")
    # 4 s and the 12 s of N + 1 windows are 16 s.
    seconds = (1, 2, 5, 15, 16, 17)
    # Which broker is the controller is not known: it may be the one with the gap.
    of_controller: dict[str, Any] = {
        "broker_id": CONTROLLER_ID, "quota_type": "controller_mutation", "kind": int(PointKind.CREATE_TOPIC),
    }  # fmt: skip
    found = judged(
        spark,
        settings,
        [used("alice", (second * 1_000 + 5, 10, 0)) for second in seconds],
        [used("alice", (second * 1_000 + 5, 10, 0), broker_id=2) for second in seconds],
        [used("alice", (second * 1_000 + 5, 10, 0), **of_controller) for second in seconds],
    )
    certain = {
        broker_id: [(row["is_certain"], row["uncertain"]) for row in sorted_by_second(found, broker_id)]
        for broker_id in (1, 2, CONTROLLER_ID)
    }
    assert (
        certain[1]
        == certain[CONTROLLER_ID]
        == [(True, 0), (False, 1), (False, 1), (False, 1), (True, 0), (True, 0)]
    )
    assert certain[2] == [(True, 0)] * 6


def sorted_by_second(rows: list[dict[str, object]], broker_id: int) -> list[dict[str, object]]:
    of_broker = [row for row in rows if row["broker_id"] == broker_id]
    return sorted(of_broker, key=lambda row: str(row["second"]))
