"""`python -m tests.capture 3.7.2|4.1.1 OUT`: the request log of a real broker under load, and its quotas.

Takes two minutes. OUT becomes a folder like those in tests/data, which says what is in them.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import yaml

from kquota_spark.embedded.admin import alter_quota, create_topics
from kquota_spark.embedded.cluster import Cluster, embedded_cluster
from kquota_spark.embedded.demo.load import run_load
from kquota_spark.embedded.readiness import connected
from kquota_spark.embedded.settings import BrokerSettings
from kquota_spark.embedded.setup.jars import ensure_jars
from kquota_spark.model.quotas.entities import Default, Entity, Name
from tests.capture.plan import EDIT, EDIT_AFTER_S, QUOTAS, TOPICS, USERS, Quota, clients, history
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.places import CONF


class Version(NamedTuple):
    ivy_xml: Path
    kraft: bool


VERSIONS = {
    "3.7.2": Version(CONF / "ivy-kafka-3.7.2.xml", False),
    "4.1.1": Version(Path(__file__).with_name("ivy-4.1.xml"), True),
}
_HEAD = (
    "# null = that part is not in the entity; '<default>' = the default entity. "
    "from_ms/to_ms: epoch ms ({}); to_ms null = until the end\n"
)
_NEVER_ROLLED = 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.capture")
    parser.add_argument("version", choices=VERSIONS)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    version: Version = VERSIONS[options.version]
    jars = ensure_jars(version.ivy_xml)
    settings = BrokerSettings(users=USERS, kraft=version.kraft, request_log_bytes=_NEVER_ROLLED)
    with tempfile.TemporaryDirectory(prefix="kquota-capture-") as directory:
        with embedded_cluster(Path(directory), settings=settings, jars=jars) as cluster:
            timeline = _record(cluster)
        # The brokers have ended, so their logs are complete.
        options.out.mkdir(parents=True, exist_ok=True)
        for broker in cluster.brokers:
            packed = gzip.compress(broker.request_log.read_bytes(), mtime=0)
            (options.out / f"broker-{broker.id}.kafka-request.log.gz").write_bytes(packed)
    times = "when AlterClientQuotas returned" if version.kraft else "znode mtime"
    text = _HEAD.format(times) + yaml.safe_dump(timeline, sort_keys=False, allow_unicode=True)
    (options.out / "quotas.yaml").write_text(text, encoding="utf-8")
    return 0


def _record(cluster: Cluster) -> list[dict[str, object]]:
    """Set the quotas, run the load with the edit in its middle; the quotas with their times."""
    create_topics(cluster, TOPICS)
    run_load(cluster, history())
    timeline = [row for quota in QUOTAS for row in _set(cluster, quota)]
    edited: list[dict[str, object]] = []
    edit = threading.Timer(EDIT_AFTER_S, lambda: edited.extend(_set(cluster, EDIT)))
    edit.start()
    for result in run_load(cluster, clients()):
        plan = result.plan
        print(
            f"{plan.user}/{plan.client_id}: {result.records} records, {result.errors} errors "
            f"{result.last_error or ''}, longest throttle {result.longest_throttle_ms:.0f} ms",
            file=sys.stderr,
        )
    edit.join()
    identity = ("user", "client_id", "type")
    for new in edited:
        [old] = [row for row in timeline if all(row[part] == new[part] for part in identity)]
        old["to_ms"] = new["from_ms"]
    return timeline + edited


def _set(cluster: Cluster, quota: Quota) -> list[dict[str, object]]:
    """Set an entity's limits; the rows of quotas.yaml about it."""
    user, client_id, limits = quota
    if cluster.has_zookeeper:
        produce, consume = limits.get("producer_byte_rate"), limits.get("consumer_byte_rate")
        set_quota(
            cluster.zookeeper_connect, user=user, client_id=client_id,
            producer_byte_rate=produce, consumer_byte_rate=consume,
        )  # fmt: skip
        with connected(cluster.zookeeper_connect) as zookeeper:
            from_ms = zookeeper.get(f"/config/{Entity(user, client_id)}")[1].mtime
    else:
        from_ms = alter_quota(cluster, limits, user=user, client_id=client_id)
    entity = {"user": _text(user), "client_id": _text(client_id)}
    return [
        {**entity, "type": key, "value": value, "from_ms": from_ms, "to_ms": None}
        for key, value in limits.items()
    ]


def _text(name: Name | None) -> str | None:
    return name.value if isinstance(name, Default) else name


if __name__ == "__main__":
    sys.exit(main())
