"""One topic of the shared cluster, and one untroubled run of the audit, for all tests of faults."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kquota_spark.embedded.cluster import Cluster
from tests.support.clusters.audited_topic import configured, fill, finish


@pytest.fixture(scope="session")
def cluster(running_with_zookeeper: Cluster) -> Cluster:
    fill(running_with_zookeeper)
    return running_with_zookeeper


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
