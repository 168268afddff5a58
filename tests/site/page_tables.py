"""The tables that the pages show: those of one broker of Kafka 4.1, written without Spark.

`python -m tests.site.page_tables` writes them into `.kquota/pages` of a checkout, where the commands of the pages find
them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.logs.captures import KRAFT41
from tests.support.places import ROOT
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.capture_violations import write_violations

PLACE = Path(".kquota") / "pages"
"""Where the commands of the pages look for the tables, relative to a checkout."""


def write_page_tables(checkout: Path) -> None:
    """Write the tables and a settings file below a folder, in place of those that are there."""
    root = checkout / PLACE / "tables"
    shutil.rmtree(root.parent, ignore_errors=True)
    root.mkdir(parents=True)
    settings = write_capture(root, KRAFT41)
    write_violations(settings)
    (root.parent / "kquota.yaml").write_text(
        f"cluster_id: {settings.cluster_id}\ntables: {PLACE}/tables\n", encoding="utf-8"
    )


if __name__ == "__main__":
    write_page_tables(ROOT)
    print(PLACE)
