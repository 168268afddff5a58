"""What the fetches of a bucket read, from the log topic of a real broker: the same as in the lines themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.model.attribution.backlogs import Position
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.positions import Positions, positions_of_lines, positions_of_topic
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.store.reading import Tables
from tests.integration.test_evidence_topic import World, ship, world_of
from tests.support.logs.captures import KRAFT41
from tests.support.places import DATA
from tests.support.tables.evidence_tables import evidence_tables

TOPIC = "positions-log"
BOB = Wanted(BucketName("fetch", "bob", ""), 1_795_291_200_000, 1_795_291_800_000)
"""From 2026-11-21 20:00 UTC, ten minutes."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written")
    with evidence_tables(root, KRAFT41):
        return root


def _positions(world: World, wanted: Wanted) -> Positions:
    settings = load_settings(world.config)
    with Tables(settings) as tables:
        return positions_of_topic(settings, tables, wanted)


def test_the_fetches_of_a_bucket_are_read_from_the_topic(
    kraft_cluster: Cluster, written: Path, tmp_path: Path
) -> None:
    ship(kraft_cluster, TOPIC, written)
    world = world_of(written, tmp_path, kraft_cluster.bootstrap_servers, TOPIC)
    [log] = (DATA / KRAFT41.name).glob("broker-*.gz")
    lines = gzip.decompress(log.read_bytes()).splitlines()
    of_bob = positions_of_lines((1, line) for line in lines if b'"User:bob"' in line)
    found = _positions(world, BOB)
    assert found == {key: of_bob[key] for key in found}
    assert len(found) > 100
    first = next(iter(found.values()))
    assert first == (Position("3zVww0mCSvKHxuvylpACoA", 1, 0, 4_991),)
    assert _positions(world, BOB._replace(bucket=BucketName("produce", "bob", ""))) == {}


def test_without_the_lines_there_are_no_positions(
    kraft_cluster: Cluster, written: Path, tmp_path: Path
) -> None:
    world = world_of(written, tmp_path, kraft_cluster.bootstrap_servers, "no-such-topic")
    assert _positions(world, BOB) == {}
