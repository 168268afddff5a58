"""Tables and quotas of a small cluster whose changes are reviewed: five clients with one request each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kquota_spark.formats.exchange import declared
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from tests.support.tables.table_rows import T0_MS, usage, write_table

Quotas = dict[AnyEntity, Mapping[AnyKey, float]]
PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
SENT = {"alice": 1_800_000, "bob": 1_000_000, "dave": 300_000}
"""Bytes of the one produce request of a user. A ring of 10 s measures 180, 100 and 30 kB/s."""
BASE: Quotas = {
    Entity("alice"): {PRODUCE: 150_000.0},  # (180 - 150) / 150 x 10 s: 2 s of delay
    Entity("bob"): {PRODUCE: 200_000.0},
    Entity("carol"): {CONSUME: 100_000.0},
    Entity("zed"): {PRODUCE: 50_000.0},  # sends nothing
    Entity("CN=app"): {PRODUCE: 50_000.0},  # neither
}
"""The sum of the produce limits of a broker is 150 + 200 + 50 + 50 = 450 kB/s; dave has no limit."""
CAPACITY = 1_000_000
_POLICY = f"""\
policies:
  - name: raises
    kind: raise
    broker_capacity_per_s: {{producer_byte_rate: {CAPACITY}}}
guards:
  bounds: {{producer_byte_rate: {{floor: 1, ceiling: 100000000, largest_step_percent: 50}}}}
"""


def sent(
    user: str, amount: int, at_s: int = 0, kind: PointKind = PointKind.PRODUCE, **changed: Any
) -> dict[str, Any]:
    """A second of usage with one request at its beginning."""
    time_ms = T0_MS + 1_000 * at_s
    point = Point(time_ms, time_ms + 1, 1, at_s, amount, 0, int(kind))
    return usage(at_s, user=user, client_id="app", amount=amount, points=[point._asdict()], **changed)


def write_reviewed_tables(root: Path) -> Path:
    """Write the tables of the five clients; returns the settings."""
    rows = [sent(user, amount) for user, amount in SENT.items()]
    rows.append(sent("carol", 500_000, kind=PointKind.FETCH, quota_type="fetch"))
    write_table(root / "tables", "usage", *rows)
    write_table(root / "tables", "decisions")
    (root / "policy.yaml").write_text(_POLICY, encoding="utf-8")
    settings = root / "kquota.yaml"
    settings.write_text(
        f"cluster_id: demo\ntables: {json.dumps(str(root / 'tables'))}\n"
        f"enforcement: {{policy_file: {json.dumps(str(root / 'policy.yaml'))}}}\n",
        encoding="utf-8",
    )
    return settings


def quota_file(folder: Path, name: str, quotas: Quotas) -> Path:
    """A file of quotas in our own format."""
    path = folder / name
    path.write_text(declared.write(quotas), encoding="utf-8")
    return path
