"""An episode lasts until its last throttle is over, wherever its end is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import MicroBatch
from tests.support.spark.queries import rows_of, settings_at
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

GAP_MS = 3_000


def over(offset_s: int, logged_ms: int, **changed: Any) -> dict[str, Any]:
    """A second above the limit, in which the broker throttled one request."""
    return decision(
        offset_s, rate_per_s=2_070_000.0, quota_used_percent=207.0, observed_throttled_requests=1,
        observed_throttle_ms=logged_ms, observed_total_throttle_ms=logged_ms,
    ) | changed  # fmt: skip


def clock(offset_s: int) -> dict[str, Any]:
    """A second of another bucket of the broker, which shows that its time has moved on."""
    return decision(offset_s, bucket_user="carol", users=["carol"])


def folded(root: Path, *batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `violations` after each list was one micro-batch."""
    settings = settings_at(root, episode_gap=GAP_MS)
    write_table(Path(settings.tables), "violations")
    for number, rows in enumerate(batches):
        write_table(Path(settings.tables), "decisions", *rows)
        data = [{name: row.get(name) for name in DECISIONS.names} for row in rows]
        decisions = pa.Table.from_pylist(data, schema=DECISIONS.arrow_schema())
        EpisodeFold(settings).fold(judged_rows(decisions, GAP_MS), MicroBatch("query", number), T0_MS)
    found = rows_of(settings, "violations")
    rebuild_all_violations(settings)
    assert rows_of(settings, "violations") == found
    return found


def length_ms(row: dict[str, Any]) -> int:
    end_ms: int = row["end_time"]
    return end_ms - int(row["start_time"])


def test_one_second_with_a_throttle_of_12_1_s_is_an_episode_of_13_s(tmp_path: Path) -> None:
    [row] = folded(tmp_path, [over(0, 12_100), clock(20)])
    # 12.1 s from second 0 on touch the seconds 0 to 12.
    assert (row["start_time"], row["last_second"], row["end_time"]) == (T0_MS, T0_MS, T0_MS + 13_000)
    assert row["observed_longest_throttle_ms"] == 12_100


@pytest.mark.parametrize(
    ("later_ms", "lasts_ms"),
    [
        (1_500, 13_000),  # from second 2 until 4: the first throttle still runs
        (11_000, 13_000),  # until 2 + 11
        (11_001, 14_000),  # until 2 + 12
    ],
)
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_last_end_of_a_throttle_counts_whatever_came_together(
    tmp_path: Path, later_ms: int, lasts_ms: int, is_one_batch: bool
) -> None:
    first, later, end = over(0, 12_100), over(2, later_ms), clock(20)
    [row] = folded(tmp_path, *([[first, later, end]] if is_one_batch else [[first], [later], [end]]))
    assert (length_ms(row), row["last_second"]) == (lasts_ms, T0_MS + 2_000)


def test_without_the_brokers_throttle_that_of_the_replay_counts_and_of_jmx_none(tmp_path: Path) -> None:
    by_replay = {"observed_total_throttle_ms": None, "throttle_ms": 2_500}
    [row] = folded(tmp_path / "log", [over(0, 0, **by_replay), clock(20)])
    assert length_ms(row) == 3_000
    # JMX has a mean of the last 30 to 60 s, not the throttles of this second.
    by_jmx = {"observed_total_throttle_ms": None, "throttle_ms": None, "source": "jmx"}
    [row] = folded(tmp_path / "jmx", [over(0, 9_000, **by_jmx), clock(20) | {"source": "jmx"}])
    assert length_ms(row) == 1_000


def test_a_violated_second_without_a_throttle_ends_with_the_second(tmp_path: Path) -> None:
    [row] = folded(tmp_path, [over(0, 0, observed_throttled_requests=0), clock(20)])
    assert length_ms(row) == 1_000


def answer(settings: Settings, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--tables", settings.tables]) == 0
    return capsys.readouterr().out


def test_commands_print_that_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_at(tmp_path, episode_gap=GAP_MS)
    folded(tmp_path, [over(0, 12_100), clock(20)])
    write_table(Path(settings.tables), "usage", usage(0))
    for words in (("violations",), ("throttled", "--episodes")):
        [line] = [line for line in answer(settings, capsys, *words).splitlines() if "user alice" in line]
        assert line.split()[:2] == ["05:40:00", "13"] and " s " in line
        [row] = json.loads(answer(settings, capsys, *words, "--output", "json"))["rows"]
        assert (row["start_time"], row["end_time"]) == ("2026-11-21T05:40:00Z", "2026-11-21T05:40:13Z")
    # The time throttled of the bucket is as long.
    [row] = json.loads(answer(settings, capsys, "throttled", "--output", "json"))["rows"]
    assert row["time_throttled_s"] == 13
    timeline = json.loads(answer(settings, capsys, "timeline", "--user", "alice", "--output", "json"))
    [episode] = [row for row in timeline["rows"] if row["kind"] == "violation"]
    assert episode["until"] == "2026-11-21T05:40:13Z"
    assert episode["what"] == "over the limit, 13 s, at most 207 %, total delay 12.1 s of 1 request"


def test_an_open_episode_is_in_the_time_of_its_throttle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_at(tmp_path, episode_gap=GAP_MS)
    [row] = folded(tmp_path, [over(0, 12_100), clock(1)])
    assert (row["end_time"], row["muted_until"]) == (None, T0_MS + 13_000)
    # Only the throttle of second 0 is in the period from second 12 on, and nothing is from 14 on.
    for since, rows in (("2026-11-21T05:40:12Z", 1), ("2026-11-21T05:40:14Z", 0)):
        found = json.loads(answer(settings, capsys, "violations", "--since", since, "--output", "json"))
        assert len(found["rows"]) == rows
