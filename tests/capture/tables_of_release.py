"""Makes `tests/data/tables-<release>`: tables and checkpoints of this checkout's release, for the tests of later ones.

`python -m tests.capture.tables_of_release DIRECTORY` in a checkout of the release, with Spark. 20 s of two users
around their limits, in two commits; the last five seconds are still open in the state of the query, and so are the
rings of both buckets. A test adds more lines by `requests_within`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from kquota_spark.audit.spark import spark_session
from kquota_spark.config.settings import Settings
from kquota_spark.store.creation import create_tables
from tests.support.spark.queries import change, run_log, settings_at, write_rules
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

RULES = (change("alice", None, 900.0), change("bob", None, 500.0))


def requests_within(first_s: int, end_s: int) -> list[dict[str, Any]]:
    """Two requests a second of each user: alice's 800 to 1,180 B, bob's 400 to 590 B, and a heartbeat."""
    rows = [
        request(second * 4 + number, T0_MS + second * 1_000 + 130 * number, user=user, charged_bytes=amount)
        for second in range(first_s, end_s)
        for number, (user, amount) in enumerate([("alice", 400 + 10 * second), ("bob", 200 + 5 * second)] * 2)
    ]
    return [*rows, heartbeat(10_000 + end_s, T0_MS + end_s * 1_000)]


def make(root: Path) -> None:
    """Write the tables and checkpoints of the first 20 s."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    settings: Settings = settings_at(root)
    create_tables(settings)
    write_rules(settings, *RULES)
    session = spark_session(settings, "tables-of-release")
    for first_s, end_s in ((0, 10), (10, 20)):
        write_table(Path(settings.tables), "requests", *requests_within(first_s, end_s))
    run_log(session, settings)
    session.stop()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
