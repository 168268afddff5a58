"""JMX beside a log that comes late: what JMX reported meanwhile is replaced, whatever comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.audit.violations.log_spans import joined
from kquota_spark.audit.violations.rebuild import rebuild_all_violations
from kquota_spark.config.settings import Kafka
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import MicroBatch
from tests.support.chance import Chance
from tests.support.spark.queries import rows_of, settings_at
from tests.support.tables.table_rows import T0_MS, decision, second, write_table

GAP_S = 3
SILENCE_S = 600
FROM_JMX = {"source": "jmx", "total_throttle_ms": None, "throttled_requests": None}
_ABOVE = {
    "rate_per_s": 1_500_000.0,
    "quota_used_percent": 150.0,
    "throttled_requests": 2,
    "total_throttle_ms": 70,
}


def over(offset_s: int, **changed: Any) -> dict[str, Any]:
    """A second of the log above the limit of 1 MB/s."""
    return {**decision(offset_s), **_ABOVE, **changed}


def over_jmx(offset_s: int, **changed: Any) -> dict[str, Any]:
    return over(offset_s, **FROM_JMX, **changed)


class Job:
    """The two queries of a job: each decides and folds its own micro-batches."""

    def __init__(self, root: Path, gap_s: int = GAP_S) -> None:
        self.settings = replace(settings_at(root, episode_gap=gap_s * 1_000), kafka=Kafka(jmx_topic="jmx"))
        self._tables = Path(self.settings.tables)
        for name in ("violations", "decisions"):
            write_table(self._tables, name)
        self._folds: dict[str, EpisodeFold] = {}
        self._number = 0

    def start(self) -> None:
        """A process of its own: it knows nothing of the one before."""
        self._folds = {query: EpisodeFold(self.settings) for query in ("log", "jmx")}

    def add(self, query: str, rows: list[dict[str, Any]], now_s: int) -> None:
        write_table(self._tables, "decisions", *rows)
        data = [{name: row.get(name) for name in DECISIONS.names} for row in rows]
        columns = pa.Table.from_pylist(data, schema=DECISIONS.arrow_schema())
        judged = judged_rows(columns, self.settings.stream.episode_gap)
        self._folds[query].fold(judged, MicroBatch(query, self._number), T0_MS + now_s * 1_000)
        self._number += 1

    def episodes(self) -> list[tuple[Any, ...]]:
        """Bucket, source, first and last second after T0, violated seconds, total delay, of each episode."""
        return sorted(
            (
                f"{row['broker_id']} {row['quota_type']} {row['bucket_user']}",
                row["source"],
                (row["start_time"] - T0_MS) // 1_000,
                (row["last_second"] - T0_MS) // 1_000,
                row["violated_seconds"],
                row["throttled_ms"],
            )
            for row in rows_of(self.settings, "violations")
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    made.start()
    return made


def test_what_jmx_reported_while_the_log_was_late_is_not_there_twice(job: Job) -> None:
    job.add("log", [decision(0)], now_s=10)
    # An outage of the log: after ten minutes JMX counts. Its second episode has ended.
    job.add("jmx", [over_jmx(700), over_jmx(702), decision(760, **FROM_JMX)], now_s=770)
    job.add("jmx", [over_jmx(800), over_jmx(802)], now_s=810)
    alice = "1 produce alice"
    assert job.episodes() == [(alice, "jmx", 700, 702, 2, None), (alice, "jmx", 800, 802, 2, None)]
    # The log comes after all, a period of it per micro-batch.
    job.add("log", [decision(second) for second in range(1, 700)], now_s=820)
    job.add(
        "log",
        [over(second) if second in range(699, 704) else decision(second) for second in range(700, 720)],
        821,
    )
    job.add("log", [over(801)] + [decision(second) for second in range(802, 820)], now_s=830)
    assert job.episodes() == [(alice, "log", 700, 703, 4, 280), (alice, "log", 801, 801, 1, 70)]


def test_of_an_episode_of_jmx_that_the_log_has_in_part_the_rest_stays(job: Job) -> None:
    # One episode from second 700 to 720. The log comes back at 712 and was not there before.
    job.add("log", [decision(0)], now_s=10)
    job.add("jmx", [over_jmx(second) for second in range(700, 721, 2)], now_s=721)
    job.add("jmx", [decision(800, **FROM_JMX)], now_s=801)
    job.add(
        "log",
        [over(second) for second in range(712, 715)] + [decision(second) for second in range(715, 790)],
        801,
    )
    # Seconds 700, 702 ... 710 of JMX are six; of the log there are three.
    assert job.episodes() == [("1 produce alice", "log", 700, 714, 9, 210)]


def test_a_late_log_of_another_type_or_broker_replaces_nothing(job: Job) -> None:
    job.add("jmx", [over_jmx(700), over_jmx(700, broker_id=2), decision(760, **FROM_JMX)], now_s=770)
    job.add(
        "log", [decision(700, quota_type="fetch"), decision(701, quota_type="fetch", broker_id=2)], now_s=780
    )
    assert [(row[0], row[1]) for row in job.episodes()] == [
        ("1 produce alice", "jmx"),
        ("2 produce alice", "jmx"),
    ]


def test_the_log_of_mutations_replaces_what_the_jmx_of_any_broker_reported(job: Job) -> None:
    mutations = {"quota_type": "controller_mutation"}
    job.add(
        "jmx", [over_jmx(700, broker_id=3, **mutations), decision(760, broker_id=3, **FROM_JMX)], now_s=770
    )
    job.add("log", [over(700, broker_id=-1, **mutations)], now_s=780)
    assert job.episodes() == [("-1 controller_mutation alice", "log", 700, 700, 1, 70)]


def test_what_comes_late_opens_no_file_of_episodes_of_other_times(job: Job) -> None:
    places = DeltaTable(f"{job.settings.tables}/violations")
    job.add("log", [over(0), decision(10)], now_s=20)
    job.add("jmx", [over_jmx(700), decision(760, **FROM_JMX)], now_s=770)
    job.add("log", [over(1_500), decision(1_510)], now_s=1_520)
    places.update_incremental()
    for uri in places.file_uris():
        path = Path(uri.removeprefix("file://"))
        if pq.read_table(path)["start_time"].to_pylist() != [second(700)]:
            path.unlink()  # so a look at it would fail
    job.start()
    job.add("log", [over(690), over(700), decision(760)], now_s=1_530)
    places.update_incremental()
    # Seconds 0, 690, 700 and 1,500.
    assert pc.sum(pa.table(places.get_add_actions())["num_records"]).as_py() == 4


def test_pauses_of_the_log_up_to_ten_minutes_are_within_a_span() -> None:
    # 600 s from 10 to 610 are joined, 601 s from 620 to 1,221 are not.
    found = joined([(610_000, 620_000), (0, 10_000), (1_221_000, 1_230_000), (5_000, 8_000)])
    assert found == [(0, 620_000), (1_221_000, 1_230_000)]


def test_whatever_comes_first_the_episodes_are_those_of_all_decisions(tmp_path: Path, chance: Chance) -> None:
    compared = 0
    for number in range(2):
        job = Job(tmp_path / str(number), gap_s=30)
        job.start()
        batches = {"log": log_of(chance), "jmx": jmx_of(chance)}
        while any(batches.values()):
            query = chance.choice([name for name, left in batches.items() if left])
            job.add(query, batches[query].pop(0), now_s=5_000)
            if chance.random() < 0.1:
                job.start()
        folded = job.episodes()
        rebuild_all_violations(job.settings)
        assert folded == job.episodes()
        compared += len(folded)
    assert compared > 10


def log_of(chance: Chance) -> list[list[dict[str, Any]]]:
    """Micro-batches of 4,000 s of a log with outages; a decision in 20 s."""
    is_there, seconds = True, list[int]()
    for start_s in range(0, 4_000, 400):
        is_there = is_there if chance.random() < 0.6 else not is_there
        if is_there:
            seconds += range(start_s, start_s + 400, 20)
    return cut([over(second) if chance.random() < 0.4 else decision(second) for second in seconds], chance)


def jmx_of(chance: Chance) -> list[list[dict[str, Any]]]:
    """Micro-batches of samples, one in 25 s."""
    seconds = range(0, 4_000, 25)
    rows = [over_jmx(each) if chance.random() < 0.5 else decision(each, **FROM_JMX) for each in seconds]
    return cut(rows, chance)


def cut(rows: list[dict[str, Any]], chance: Chance) -> list[list[dict[str, Any]]]:
    ends = sorted(chance.sample(range(1, len(rows)), 6)) if len(rows) > 10 else []
    return [
        rows[start:end] for start, end in zip([0, *ends], [*ends, len(rows)], strict=True) if rows[start:end]
    ]
