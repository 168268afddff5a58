"""What a shipper told of lost lines: read by INGEST, copied to `log_gaps` once, heeded by the replay."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.io.delta_tables import create_tables
from kquota_spark.io.log_gaps import record_gaps
from kquota_spark.schema.tables import REQUESTS

T0_MS = 1_795_239_600_000
MOMENT = dt.datetime.fromtimestamp(T0_MS / 1_000, dt.UTC)


def told(settings: Settings, broker_id: int, from_ms: int, to_ms: int, **more: Any) -> None:
    row = {
        "cluster_id": settings.cluster_id, "event_date": MOMENT.date(), "kind": "gap", "broker_id": broker_id,
        "log_time_ms": T0_MS + from_ms, "record_time_ms": T0_MS + to_ms, "is_out_of_time": False, **more,
    }  # fmt: skip
    write_deltalake(
        f"{settings.tables}/requests",
        pa.Table.from_pylist([row], schema=REQUESTS.arrow_schema()),
        mode="append",
    )


def test_each_gap_is_recorded_once(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster_id="demo", tables=str(tmp_path / "tables"))
    create_tables(settings)
    assert record_gaps(settings) == 0
    told(settings, 1, 0, 5_000)
    told(settings, 1, 0, 5_000)  # told again after a crash of the shipper
    told(settings, 2, 0, 5_000, is_out_of_time=True)
    told(settings, 2, 0, 5_000, cluster_id="other")
    told(settings, 2, 0, 5_000, kind="heartbeat")
    assert record_gaps(settings) == 1
    assert record_gaps(settings) == 0
    told(settings, 2, 1_500, 2_000)
    assert record_gaps(settings) == 1
    rows = DeltaTable(f"{settings.tables}/log_gaps").to_pyarrow_table().sort_by("broker_id").to_pylist()
    ms = dt.timedelta(milliseconds=1)
    assert rows == [
        {
            "cluster_id": "demo", "broker_id": 1, "from_time": MOMENT, "to_time": MOMENT + 5_000 * ms,
            "reason": "the shipper lost lines",
        },
        {
            "cluster_id": "demo", "broker_id": 2, "from_time": MOMENT + 1_500 * ms,
            "to_time": MOMENT + 2_000 * ms, "reason": "the shipper lost lines",
        },
    ]  # fmt: skip
