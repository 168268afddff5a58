"""The plain process of the benchmark audits: its tables add up to the lines that it has read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
from confluent_kafka import Message
from deltalake import DeltaTable

from kquota_spark.model.quotas.entities import DEFAULT
from tests.bench.lines import EVEN, START_MS, closing_heartbeats, lines
from tests.bench.plain import PlainAudit
from tests.bench.reconcile import problems
from tests.support.spark.queries import change, settings_at, write_rules

COUNT = 2_000


def test_the_plain_process_decides_every_line_once(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    write_rules(settings, *(change("user-1", "app-1", 2_000.0), change(DEFAULT, None, 100.0)))
    messages = [
        Message(
            topic="log",
            partition=line.broker_id - 1,
            offset=offset,
            key=str(line.broker_id).encode(),
            value=line.text,
            timestamp=(1, START_MS + 60_000),
        )
        for offset, line in enumerate([*lines(range(COUNT)), *closing_heartbeats(COUNT)])
    ]
    audit = PlainAudit(settings, tmp_path / "plain")
    audit.take(messages[:900], is_end=False)
    audit.take(messages[900:], is_end=True)
    assert problems(tmp_path / "plain", COUNT, EVEN.expected(COUNT)) == []
    decided = DeltaTable(str(tmp_path / "plain" / "decisions")).to_pyarrow_table(columns=["throttle_ms"])
    assert pc.sum(decided["throttle_ms"]).as_py() > 0
