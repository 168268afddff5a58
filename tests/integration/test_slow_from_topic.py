"""`kquota slow` and the line of `kquota why` from the log topic of a real broker: as from the file itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.formats.request_log.broker_times import BrokerTimes
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.slow.beside import slow_beside
from tests.support.logs.replayed_captures import run
from tests.support.places import DATA

TOPIC = "slow-log"
FOLDER = DATA / "slow-broker"
LOG = FOLDER / "broker-1.log.gz"
MADE = json.loads((FOLDER / "run.json").read_text())
PERIOD = ("--since", str(MADE["since_ms"]), "--until", str(MADE["to_ms"]))
_CONFIG = """\
cluster_id: test
kafka: {{bootstrap_servers: "{servers}", topic: {topic}, broker_from: [key]}}
"""


@pytest.fixture(scope="module")
def shipped(kraft_cluster: Cluster) -> str:
    """The address of a broker with the lines of the recording, stamped with their own times, on two partitions."""
    stamps = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    create_topics(kraft_cluster, {TOPIC: 2}, config=stamps)
    lines = gzip.decompress(LOG.read_bytes()).splitlines()
    producer = Producer({**kraft_cluster.client_settings(), "queue.buffering.max.messages": len(lines) + 1})
    times = BrokerTimes()
    for number, line in enumerate(lines):
        served = times.served(line)
        assert served is not None
        producer.produce(TOPIC, line, key=b"1", partition=number % 2, timestamp=int(served.handled_ms))
    assert producer.flush(60) == 0
    return kraft_cluster.bootstrap_servers


def _config(folder: Path, servers: str, topic: str = TOPIC) -> Path:
    path = folder / "kquota.yaml"
    path.write_text(_CONFIG.format(servers=servers, topic=topic), encoding="utf-8")
    return path


def test_the_topic_gives_the_answer_of_the_file(shipped: str, tmp_path: Path) -> None:
    config = str(_config(tmp_path, shipped))
    code, of_topic, _ = run(["slow", "--config", config, *PERIOD, "--output", "json"])
    assert code == 0
    _, of_file, _ = run(["slow", str(LOG), *PERIOD, "--output", "json"])
    assert json.loads(of_topic) == json.loads(of_file)


def test_only_the_messages_of_the_period_are_read(shipped: str, tmp_path: Path) -> None:
    config = str(_config(tmp_path, shipped))
    period = ("--since", str(MADE["since_ms"] - 2_000), "--until", str(MADE["since_ms"]))
    code, out, _ = run(["slow", "--config", config, *period, "--output", "json"])
    assert code == 0
    # Lines reach a topic up to a minute late, so all of the 18 s are read; nothing is asked of the slow ones.
    assert json.loads(out)["brokers"][0]["slow_seconds"] == 0


def test_other_brokers_have_no_requests(shipped: str, tmp_path: Path) -> None:
    config = str(_config(tmp_path, shipped))
    code, _, err = run(["slow", "--config", config, "--broker", "2", *PERIOD])
    assert code == 1
    assert "no request of broker 2 from 2026-11-27" in err


def test_a_missing_topic_is_one_line(shipped: str, tmp_path: Path) -> None:
    config = str(_config(tmp_path, shipped, "no-such-topic"))
    code, _, err = run(["slow", "--config", config])
    assert code == 1
    assert err == (
        "kquota: the log topic cannot be read: topic no-such-topic does not exist, or the user of kafka.options may "
        "not read it\n"
    )


def test_a_violation_beside_a_slow_broker_has_the_clients_outside_of_its_bucket(
    shipped: str, tmp_path: Path
) -> None:
    settings = load_settings(_config(tmp_path, shipped))
    period = MADE["since_ms"], MADE["to_ms"]
    [found] = slow_beside(settings, BucketName("produce", "elder", ""), *period, lambda _: None)
    assert found.broker_id == 1
    # The one with the most slow seconds first; the last is the connection of the broker itself.
    assert [victim.client[0] for victim in found.victims] == ["maple", "birch", "alder", "ANONYMOUS"]
    assert found.suspect is not None
    assert found.suspect.client == ("cedar", "cedar-app")


def test_without_a_named_kafka_or_the_lines_nothing_is_known(shipped: str, tmp_path: Path) -> None:
    bucket, period = BucketName("produce", "elder", ""), (MADE["since_ms"], MADE["to_ms"])
    missing = load_settings(_config(tmp_path, shipped, "no-such-topic"))
    assert slow_beside(missing, bucket, *period, lambda _: None) == []
    unnamed = tmp_path / "unnamed.yaml"
    unnamed.write_text("cluster_id: test\n", encoding="utf-8")
    assert slow_beside(load_settings(unnamed), bucket, *period, lambda _: None) == []
