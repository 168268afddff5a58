"""A walk of forty steps, by hand of a hundred: lines arrive, the query runs, fails at a step, forgets its last commit.

Which step comes when is drawn by chance. In the end all tables are those of one run over the whole topic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kquota_spark.audit.queries import close_all_windows, start_query
from kquota_spark.checkpoints.checkpoints import LOG
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.store.creation import create_tables
from tests.bench.lines import START_MS, lines
from tests.support.chance import Chance
from tests.support.spark.durable_steps import AFTER, BEFORE, install
from tests.support.spark.queries import (
    change,
    forget_last_commit,
    rows_of,
    run,
    settings_at,
    write_rules,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "kquota.walked-{steps}"
LINES_PER_S, LINES_AT_ONCE = 60, 120
DURABLE = ("replace log.pinned.json", "add requests", "add usage", "add decisions", "merge violations")
TABLES = ("requests", "usage", "decisions", "violations")
WEIGHTS = {"arrive": 5, "run": 2, "fail": 3, "forget": 1}
RULES = (
    change("user-2", None, 2_000.0),
    change("user-3", None, 4_000.0),
    change("user-3", None, 1_000.0, at_ms=START_MS + 20_000),
)


class Crash(Exception):
    """What stands for the end of the process."""


class Lines:
    """The topic, to which two seconds of lines come at a time.

    Attributes:
        arrived: lines so far.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        create_topics(cluster, {topic: 2})
        self._producer = Producer(cluster.client_settings())
        self.arrived = 0

    def arrive(self) -> None:
        """The next ones."""
        wanted = range(self.arrived, self.arrived + LINES_AT_ONCE)
        for line in lines(wanted, lines_per_s=LINES_PER_S):
            key = str(line.broker_id).encode()
            self._producer.produce(
                self._topic, line.text, key, partition=line.broker_id % 2, timestamp=START_MS + 3_600_000
            )
        assert self._producer.flush(60) == 0
        self.arrived = wanted.stop


class Walk:
    """One set of tables, and what becomes of them.

    Attributes:
        failed: at which moments the query has failed.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        self.failed: list[str] = []
        self._fails_at = ""
        create_tables(settings)
        write_rules(settings, *RULES)

    def come(self, moment: str) -> None:
        """Fail here, if it is the moment."""
        if moment == self._fails_at:
            self.failed.append(moment)
            self._fails_at = ""
            raise Crash(moment)

    def run(self) -> None:
        """Work through what has arrived."""
        run(start_query(self._spark, self._settings, LOG, is_once=True, notice=print))

    def fail(self, moment: str) -> None:
        """Run, and fail at a moment if it comes."""
        from pyspark.errors import StreamingQueryException

        self._fails_at, times = moment, len(self.failed)
        try:
            self.run()
        except StreamingQueryException:
            if len(self.failed) == times:
                raise
        self._fails_at = ""

    def forget(self) -> None:
        """As if Spark had not noted its last micro-batch."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            forget_last_commit(self._settings)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """All tables, with the last seconds closed."""
        self.run()
        close_all_windows(self._settings)
        self.run()
        return {name: rows_of(self._settings, name) for name in TABLES}


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.by_hand)])
def test_after_a_walk_the_tables_are_those_of_one_run(
    count: int,
    spark: SparkSession,
    running_with_zookeeper: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: Chance,
) -> None:
    name = TOPIC.format(steps=count)
    kafka = Kafka(bootstrap_servers=running_with_zookeeper.bootstrap_servers, topic=name)
    walk = Walk(spark, replace(settings_at(tmp_path / "walked"), kafka=kafka))
    topic = Lines(running_with_zookeeper, name)
    topic.arrive()
    install(walk.come, monkeypatch.setattr)
    steps: dict[str, Callable[[], None]] = {"arrive": topic.arrive, "run": walk.run, "forget": walk.forget}
    for _ in range(count):
        [step] = chance.choices(sorted(WEIGHTS), [WEIGHTS[name] for name in sorted(WEIGHTS)])
        moment = f"{chance.choice((BEFORE, AFTER))} {chance.choice(DURABLE)}"
        print(step, moment if step == "fail" else "", flush=True)
        if step == "fail":
            walk.fail(moment)
        else:
            steps[step]()
    walked = walk.rows()
    print("failed", walk.failed)

    expected = Walk(spark, replace(settings_at(tmp_path / "straight"), kafka=kafka)).rows()
    assert len(expected["requests"]) == topic.arrived
    assert expected["violations"] != []
    for name in TABLES:
        assert walked[name] == expected[name], name
    assert len(walk.failed) >= count // 20
