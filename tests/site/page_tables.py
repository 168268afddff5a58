"""The tables that the pages show: those of one broker of Kafka 4.1, written without Spark.

`python -m tests.site.page_tables` writes them into `.kquota/pages` of a checkout, where the commands of the pages find
them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.pipeline.shadow.rules import ShadowPin
from tests.right_size.tables import write_weeks
from tests.support.logs.captures import KRAFT41
from tests.support.pipeline.capture_shadow import write_shadow
from tests.support.pipeline.shadowed import Values
from tests.support.places import ROOT
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.capture_violations import write_violations

SHADOW: Values = {
    Entity("alice", "etl"): {QuotaKey.PRODUCER_BYTE_RATE: 120_000.0},
    Entity("alice", DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 90_000.0},
    Entity("bob", None): {QuotaKey.PRODUCER_BYTE_RATE: 160_000.0, QuotaKey.CONSUMER_BYTE_RATE: 250_000.0},
    Entity(DEFAULT, "shared"): {QuotaKey.PRODUCER_BYTE_RATE: 120_000.0},
    Entity(DEFAULT, None): {QuotaKey.CONSUMER_BYTE_RATE: 180_000.0},
    Entity(None, "legacy"): {QuotaKey.PRODUCER_BYTE_RATE: 100_000.0},
    Entity(None, "setup"): {QuotaKey.PRODUCER_BYTE_RATE: 10_000_000.0},
    Entity(None, DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 60_000.0},
}
"""The shadow quotas of the pages: another limit for alice's etl, for bob, and for legacy."""
PLACE = Path(".kquota") / "pages"
"""Where the commands of the pages look for the tables, relative to a checkout."""
WEEKS = Path(".kquota") / "weeks"
"""The same for tables of three weeks, which `kquota rightsize` needs."""


def write_page_tables(checkout: Path) -> None:
    """Write the tables and a settings file below a folder, in place of those that are there."""
    root = checkout / PLACE / "tables"
    shutil.rmtree(root.parent, ignore_errors=True)
    root.mkdir(parents=True)
    settings = write_capture(root, KRAFT41)
    write_violations(settings)
    write_shadow(settings, KRAFT41, SHADOW, ShadowPin("proposal", "5d2c0f6a91be", 0))
    write_growing_weeks(checkout)
    (root.parent / "kquota.yaml").write_text(
        f"cluster_id: {settings.cluster_id}\ntables: {PLACE}/tables\n", encoding="utf-8"
    )


def write_growing_weeks(checkout: Path) -> None:
    """Write tables of three weeks with known demand, and their settings."""
    place = checkout / WEEKS
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_weeks(place, 21).write_text(f"cluster_id: weeks\ntables: {WEEKS}/tables\n", encoding="utf-8")


if __name__ == "__main__":
    write_page_tables(ROOT)
    print(PLACE)
