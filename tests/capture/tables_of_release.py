"""Makes `tests/data/tables-<release>`: tables of this checkout's release, for the tests of later ones.

`python -m tests.capture.tables_of_release DIRECTORY` in a checkout of the release, with Spark. 20 s of two users
around their limits, in two commits; the last five seconds are not judged yet. A test adds more lines by
`requests_within`.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from kquota_spark.audit.spark import spark_session
from kquota_spark.config.settings import Settings
from kquota_spark.model.measure.points import Point
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import GovernedSecond, judge_bucket, replay_of
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.store.creation import create_tables
from tests.support.spark.queries import change, run_log, settings_at, write_rules
from tests.support.tables.table_rows import T0_MS, heartbeat, request, write_table

_LIMITS = {"alice": 900.0, "bob": 500.0}
RULES = tuple(change(user, None, limit) for user, limit in _LIMITS.items())


def requests_within(first_s: int, end_s: int) -> list[dict[str, Any]]:
    """Two requests a second of each user: alice's 800 to 1,180 B, bob's 400 to 590 B, and a heartbeat.

    The broker throttles as the replay does.
    """
    rows = [row for user in _LIMITS for row in _throttled(user, end_s) if row["kafka_offset"] >= first_s * 4]
    return [*sorted(rows, key=itemgetter("kafka_offset")), heartbeat(10_000 + end_s, T0_MS + end_s * 1_000)]


def _throttled(user: str, end_s: int) -> list[dict[str, Any]]:
    """Requests of a user from the beginning, with their throttles."""
    places = [
        (second, number)
        for second in range(end_s)
        for number, each in enumerate([*_LIMITS] * 2)
        if each == user
    ]
    points = [
        Point(
            T0_MS + second * 1_000 + 130 * number,
            T0_MS + second * 1_000 + 130 * number + 1,
            0,
            number,
            amount,
            0,
            0,
        )
        for second, number in places
        for amount in [400 + 10 * second if user == "alice" else 200 + 5 * second]
    ]
    governing, verdicts = Governing(_LIMITS[user]), list[Verdict]()
    seconds = [
        GovernedSecond(second_ms, user, "etl", governing, None, None, None, [*of_second])
        for second_ms, of_second in groupby(points, lambda point: point.record_time_ms // 1_000 * 1_000)
    ]
    judge_bucket(replay_of(QuotaType.PRODUCE, RateConfig()), seconds, verdicts)
    return [
        request(second * 4 + number, point.record_time_ms, user=user, charged_bytes=point.amount,
                observed_throttle_ms=verdict.throttle_ms)
        for (second, number), point, verdict in zip(places, points, verdicts, strict=True)
    ]  # fmt: skip


def make(root: Path) -> None:
    """Write the tables of the first 20 s."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    settings: Settings = settings_at(root)
    create_tables(settings)
    write_rules(settings, *RULES)
    session = spark_session(settings, "tables-of-release")
    for first_s, end_s in ((0, 10), (10, 20)):
        write_table(Path(settings.tables), "requests", *requests_within(first_s, end_s))
    run_log(session, settings)
    session.stop()
    shutil.rmtree(settings.checkpoints)  # Spark notes the paths of this machine in them


if __name__ == "__main__":
    make(Path(sys.argv[1]))
