"""The exporter over literal tables: a scrape at a time of the test's own, and decisions that are committed later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.process.metrics import exposition
from kquota_spark.reports.exported.tables import ExportedTables
from tests.support.programs.exposition_format import parsed_exposition
from tests.support.tables.table_rows import T0_MS, write_table


class Exporter:
    """Tables under a root, and the exporter of them; seconds count from T0."""

    def __init__(self, root: Path, max_series: int = 500, owners: str = "") -> None:
        self.root = root
        settings = Settings(cluster_id="demo", tables=str(root), owners=owners)
        self.exported = ExportedTables(settings, max_series)

    def refresh(self, at_s: int) -> None:
        """One refresh, at that time."""
        self.exported.refresh(T0_MS + at_s * 1_000)
        self.exported.count_refresh(T0_MS + at_s * 1_000, 0.25, is_failed=False)
        self.exposed = self.exported.exposed(T0_MS + at_s * 1_000)

    def text(self, at_s: int) -> str:
        """The scrape at that time."""
        return exposition(self.exposed.at(T0_MS + at_s * 1_000))

    def judged(self, at_s: int, *decisions: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
        """Commit decisions, refresh, and scrape."""
        if decisions:
            write_table(self.root, "decisions", *decisions)
        self.refresh(at_s)
        return self.scraped(at_s)

    def scraped(self, at_s: int) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by metric and by the labels' values; without the cluster and broker 1."""
        return {
            name.removeprefix("kquota_"): {
                tuple(
                    value
                    for label, value in labels
                    if label != "cluster_id" and (label, value) != ("broker_id", "1")
                ): number
                for labels, number in samples.items()
            }
            for name, samples in parsed_exposition(self.text(at_s)).items()
        }
