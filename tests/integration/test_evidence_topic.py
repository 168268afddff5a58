"""`kquota evidence` with lines from the log topic of a real broker: as in the table, in its place, and expired."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake

from kquota_spark.cli.main import main
from kquota_spark.embedded.admin import create_topics
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.servers import free_ports
from kquota_spark.evidence.bundle import MANIFEST
from kquota_spark.pipeline.kept_requests import Kept, kept_requests
from tests.support.logs.captures import KRAFT41
from tests.support.places import DATA
from tests.support.tables.evidence_tables import evidence_tables
from tests.support.tables.tampered_bundles import unzipped

TOPIC, PARTITION = "evidence-log", 1
ALICE = ("--user", "alice", "--client-id", "etl", "--at", "2026-11-21T20:03:58Z")
_CONFIG = """\
cluster_id: test
tables: {tables}
kafka: {{bootstrap_servers: "{servers}", topic: {topic}, broker_from: [key]}}
broker: {{version: "4.1"}}
"""


class World(NamedTuple):
    """Tables of a capture, and the settings that name the topic with its lines."""

    root: Path
    config: Path

    def requests(self) -> pa.Table:
        return DeltaTable(str(self.root / "requests")).to_pyarrow_table().sort_by("kafka_offset")

    def write(self, rows: pa.Table) -> None:
        write_deltalake(str(self.root / "requests"), rows, mode="overwrite")

    def keep(self, kept: Kept) -> None:
        """Write the rows that the job keeps with this `tables.requests`."""
        [batch] = self.requests().combine_chunks().to_batches()
        self.write(pa.Table.from_batches([kept_requests(batch, kept, {1})]))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the capture, which each test copies."""
    root = tmp_path_factory.mktemp("written")
    with evidence_tables(root, KRAFT41):
        return root


def world_of(written: Path, root: Path, servers: str, topic: str) -> World:
    found = World(root / "tables", root / "kquota.yaml")
    shutil.copytree(written, found.root)
    rows = found.requests()
    names = pa.array([topic] * rows.num_rows)
    found.write(rows.set_column(rows.schema.get_field_index("topic"), "topic", names))
    found.config.write_text(_CONFIG.format(tables=found.root, servers=servers, topic=topic), encoding="utf-8")
    return found


def ship(cluster: Cluster, topic: str, written: Path) -> None:
    """Send the lines of the capture's broker, each with the time that the table has of its message."""
    create_topics(cluster, {topic: PARTITION + 1}, config={"retention.ms": "-1"})
    rows = DeltaTable(str(written / "requests")).to_pyarrow_table().sort_by("kafka_offset")
    [log] = (DATA / KRAFT41.name).glob("broker-*.gz")
    lines = gzip.decompress(log.read_bytes()).splitlines()
    producer = Producer({**cluster.client_settings(), "queue.buffering.max.messages": len(lines) + 1})
    for line, time_ms in zip(lines, rows["kafka_timestamp_ms"].to_pylist(), strict=True):
        producer.produce(topic, line, key=b"1", partition=PARTITION, timestamp=int(time_ms or 0))
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def shipped(kraft_cluster: Cluster, written: Path) -> str:
    """The address of a broker with all lines of the capture in the topic."""
    ship(kraft_cluster, TOPIC, written)
    return kraft_cluster.bootstrap_servers


def evidence(
    capsys: pytest.CaptureFixture[str], world: World, *options: str
) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()  # what the tables were written with
    code = main(["evidence", "--config", str(world.config), *ALICE, *options, "--output", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def bundle(capsys: pytest.CaptureFixture[str], world: World, *options: str) -> bytes:
    path = world.config.parent / "alice.zip"
    code, _, err = evidence(capsys, world, "--bundle", str(path), *options)
    assert (code, err) == (0, "")
    assert main(["evidence", "--verify", str(path)]) == 0
    capsys.readouterr()
    return path.read_bytes()


def test_lines_of_the_topic_are_those_of_the_table(
    shipped: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = world_of(written, tmp_path, shipped, TOPIC)
    code, found, err = evidence(capsys, world)
    assert (code, err, found["rebuilt"]["is_equal"]) == (0, "", True)
    assert (found["lines_from"], found["why_not_topic"]) == ("topic", None)
    assert " lines from the log topic, as in table requests, since 2026-11-21 20:0" in found["lines"]
    _, of_table, _ = evidence(capsys, world, "--lines", "table")
    assert of_table["lines_from"] == "table"
    assert of_table["chain"] == found["chain"]
    from_topic, from_table = (
        unzipped(bundle(capsys, world)),
        unzipped(bundle(capsys, world, "--lines", "table")),
    )
    assert from_topic["lines.jsonl"] == from_table["lines.jsonl"]
    origins = [json.loads(each[MANIFEST])["lines_from"] for each in (from_topic, from_table)]
    assert origins == ["the log topic", "table requests"]


@pytest.mark.parametrize("kept", ["throttled", "unreadable"])
def test_the_topic_has_the_lines_without_rows_of_their_own(
    kept: Kept, shipped: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = world_of(written, tmp_path, shipped, TOPIC)
    of_all = bundle(capsys, world)
    world.keep(kept)
    rows = world.requests()
    # Of the 13,217 lines, so many have no row: half of them with `throttled`, all requests with `unreadable`.
    assert pc.sum(rows["lines"]).as_py() > 6_000
    assert bundle(capsys, world) == of_all
    # A wrong sum of one second.
    is_sum = pc.equal(rows["kind"], pa.scalar("left_out"))
    bytes_of = pc.if_else(is_sum, pc.add(rows["charged_bytes"], 1), rows["charged_bytes"])
    world.write(rows.set_column(rows.schema.get_field_index("charged_bytes"), "charged_bytes", bytes_of))
    code, _, err = evidence(capsys, world)
    assert code == 1
    assert "one of both was changed, or the settings of the parser are others" in err


def test_a_row_that_differs_from_its_line_is_named(
    shipped: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = world_of(written, tmp_path, shipped, TOPIC)
    _, found, _ = evidence(capsys, world)
    offset = found["chain"]["line"]["kafka_offset"]
    rows = world.requests()
    throttles = pc.if_else(pc.equal(rows["kafka_offset"], pa.scalar(offset)), 1, rows["observed_throttle_ms"])
    place = rows.schema.get_field_index("observed_throttle_ms")
    world.write(rows.set_column(place, "observed_throttle_ms", throttles.cast(rows.schema.field(place).type)))
    code, _, err = evidence(capsys, world)
    assert code == 1
    assert err.startswith(
        f"kquota: topic {TOPIC}, partition 1, offset {offset:,} has another observed_throttle_ms than its row in "
        "table requests"
    )


def test_an_expired_topic_leaves_the_table_or_a_refusal_with_the_reason(
    kraft_cluster: Cluster, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, servers = "evidence-log-expired", kraft_cluster.bootstrap_servers
    world = world_of(written, tmp_path, servers, topic)
    ship(kraft_cluster, topic, written)
    admin = AdminClient({**kraft_cluster.client_settings()})
    for answer in admin.delete_records([TopicPartition(topic, PARTITION, 4_900)]).values():
        answer.result(30)
    reason = f"topic {topic}, partition 1 begins at offset 4,900: older lines expired"
    code, found, err = evidence(capsys, world)
    assert (code, err) == (0, "")
    assert (found["lines_from"], found["why_not_topic"]) == ("table", reason)
    assert evidence(capsys, world, "--lines", "topic") == (1, {}, f"kquota: --lines topic: {reason}\n")
    world.keep("throttled")
    code, _, err = evidence(capsys, world)
    assert code == 1
    assert err.endswith(
        "have no row in table requests, because of tables.requests, and the log topic does not have them: "
        f"{reason}\n"
    )


def test_without_an_answer_of_kafka_the_table_has_the_lines(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    world = world_of(written, tmp_path, f"127.0.0.1:{port}", TOPIC)
    code, found, err = evidence(capsys, world)
    assert (code, err, found["lines_from"]) == (0, "", "table")
    assert f"127.0.0.1:{port}" in found["why_not_topic"]
    assert main(["evidence", "--config", str(world.config), *ALICE]) == 0
    assert "topic     not read: " in capsys.readouterr().out
