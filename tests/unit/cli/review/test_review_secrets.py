"""A dozen and more secrets in the settings of a review: none of them shows in a comment, an answer or an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.model.quotas.entities import Entity
from tests.support.programs.canaries import AT_DEBUG, SECRETS, Planted, Way, hits
from tests.support.reports.reviewed_tables import BASE, PRODUCE, quota_file, write_reviewed_tables

_HEAD = "cluster_id: demo\ntables: {root}/tables\n"
_KAFKA = """\
  bootstrap_servers: 127.0.0.1:1
  topic: lines
  jmx_topic: samples
  options:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
"""
_QUOTAS = "  source: zookeeper\n  zookeeper_connect: 127.0.0.1:1\n  connect_timeout: 500 ms\n"


@pytest.fixture(params=["environment", "file"])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Planted:
    way: Way = request.param
    made = Planted(tmp_path, way)
    write_reviewed_tables(tmp_path)
    made.write(_HEAD, _KAFKA, _QUOTAS)
    quota_file(tmp_path, "base.yaml", BASE)
    quota_file(tmp_path, "head.yaml", {**BASE, Entity("bob"): {PRODUCE: 80_000.0}})
    (tmp_path / "broken.yaml").write_text("- {user: bob, type: producer_byte_rate, value: much}\n")
    return made


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--head head.yaml", 2),
        ("--head head.yaml --output json", 2),
        ("--head broken.yaml", 1),
        ("--head nowhere.yaml", 1),
    ],
)
def test_no_secret_of_the_settings_shows(planted: Planted, words: str, code: int) -> None:
    assert len(SECRETS) >= 12
    done = subprocess.run(
        [sys.executable, "-m", "kquota_spark.cli.main", "review", "--base", "base.yaml", *words.split(),
         "--config", str(planted.config)],
        cwd=planted.root, env=planted.environment(), capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    # In this text all settings of all logs would show.
    assert AT_DEBUG.encode() in done.stderr
    assert hits({"out": done.stdout, "err": done.stderr}, SECRETS.values()) == []
