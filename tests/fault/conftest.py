"""One cluster with one topic, and one untroubled run of the audit, for all tests of faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from tests.support.clusters.audited_topic import configured, fill, finish


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with embedded_cluster(tmp_path_factory.mktemp("cluster")) as running:
        fill(running)
        yield running


@dataclass(frozen=True)
class Run:
    """An audit that has ended: where its tables are, and how long it took."""

    root: Path
    seconds: float


@pytest.fixture(scope="session")
def calm(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("audited") / "calm"
    config = configured(root, cluster)
    started_s = time.monotonic()
    finish(config)
    return Run(root, time.monotonic() - started_s)
