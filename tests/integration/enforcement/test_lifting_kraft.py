"""Quotas of a KRaft cluster lifted and restored, and a person's own change, through the Admin API."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.embedded.admin import alter_quota
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.process.processes import wait_for


@pytest.fixture(scope="module")
def cluster(kraft_cluster: Cluster) -> Cluster:
    return kraft_cluster


@pytest.fixture
def config(cluster: Cluster, tmp_path: Path) -> Path:
    path = tmp_path / "kquota.yaml"
    path.write_text(
        f"cluster_id: payments\ntables: {tmp_path}/tables\nquotas: {{source: admin}}\n"
        f"kafka: {{bootstrap_servers: '{cluster.bootstrap_servers}'}}\n",
        encoding="utf-8",
    )
    return path


def described(admin: QuotaAdmin) -> list[tuple[str, str, float]]:
    return sorted((str(entity), key.value, value) for entity, key, value in admin.describe())


def test_lifted_quotas_come_back_as_they_were(
    cluster: Cluster, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alter_quota(cluster, {"producer_byte_rate": 10_000, "request_percentage": 12.5}, client_id=DEFAULT)
    alter_quota(cluster, {"consumer_byte_rate": 7}, user="CN=a b/c", client_id="<default>")
    before = [
        ("clients/<default>", "producer_byte_rate", 10_000.0),
        ("clients/<default>", "request_percentage", 12.5),
        ("users/CN%3Da%20b%2Fc/clients/%3Cdefault%3E", "consumer_byte_rate", 7.0),
    ]
    with closing(QuotaAdmin(cluster.bootstrap_servers, {}, timeout_ms=60_000)) as admin:
        assert wait_for(lambda: described(admin) == before, within_s=60), described(admin)
        assert main(["quotas", "disable", "--config", str(config), "--yes", "--reason", "incident 7"]) == 0
        assert "3 quotas lifted" in capsys.readouterr().out
        assert wait_for(lambda: described(admin) == [], within_s=60)
        # Somebody sets one of them meanwhile: that stays, and the others come back.
        alter_quota(cluster, {"request_percentage": 50.0}, client_id=DEFAULT)
        assert wait_for(lambda: len(described(admin)) == 1, within_s=60)
        assert main(["quotas", "enable", "--config", str(config), "--yes"]) == 1
        expected = [before[0], ("clients/<default>", "request_percentage", 50.0), before[2]]
        assert wait_for(lambda: described(admin) == expected, within_s=60), described(admin)
