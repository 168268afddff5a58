"""Commands on a cluster in memory: it is registered as the backend of every address that they open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from kquota_spark.enforce.ports import Cluster
from kquota_spark.quotas.backends import BACKENDS, ClusterAddress


@contextmanager
def opens(cluster: Cluster) -> Iterator[list[ClusterAddress]]:
    """Commands work on this cluster until the block ends; the addresses that they open are in the list."""
    found: list[ClusterAddress] = []

    def opened(address: ClusterAddress) -> nullcontext[Cluster]:
        found.append(address)
        return nullcontext(cluster)

    before = dict(BACKENDS)
    BACKENDS.update(dict.fromkeys(before, opened))
    try:
        yield found
    finally:
        BACKENDS.update(before)


def save_settings(folder: Path) -> None:
    """The settings file that commands read in this folder; it names a cluster, so that they need no option."""
    path = folder / "conf" / "kquota.yaml"
    path.parent.mkdir()
    path.write_text("quotas: {zookeeper_connect: 'zk1:2181'}\n", encoding="utf-8")
