"""Spark is ready where PySpark has its jars, whoever linked them; else they are fetched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kquota_spark.embedded.setup.jars import CONF, IVY_XML
from kquota_spark.embedded.setup.spark import prepare_spark
from kquota_spark.embedded.setup.sums import parse_sums, read_sums
from kquota_spark.errors import UserError

SHIPPED = "RoaringBitmap-1.2.1.jar"
"""PySpark's own, of another version than that of the list."""
DELTA = "delta-spark_4.2_2.13-4.4.0.jar"


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PySpark's jars with all links, of a user whose cache cannot be written."""
    cache, directory = tmp_path / "cache", tmp_path / "pyspark"
    cache.mkdir()
    directory.mkdir()
    for name in parse_sums(read_sums(IVY_XML), IVY_XML):
        conf, _, jar = name.partition("/")
        if conf == "spark" and not jar.startswith("RoaringBitmap"):
            (cache / jar).write_bytes(b"")
            (directory / jar).symlink_to(cache / jar)
    (directory / SHIPPED).write_bytes(b"")
    monkeypatch.setattr("kquota_spark.embedded.setup.spark.pyspark_jars", lambda: directory)
    monkeypatch.setenv("KQUOTA_JARS", str(directory / SHIPPED / "below-a-file"))
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    return directory


def test_a_pyspark_with_all_its_jars_needs_no_cache_and_keeps_its_links(linked: Path) -> None:
    before = {jar.name: jar.resolve() for jar in linked.iterdir()}
    prepare_spark("enforce run")
    assert os.environ["SPARK_CONF_DIR"] == str(CONF)
    assert {jar.name: jar.resolve() for jar in linked.iterdir()} == before


@pytest.mark.parametrize("is_target_left", [False, True])
def test_a_jar_that_is_missing_or_a_link_to_nothing_is_fetched(linked: Path, *, is_target_left: bool) -> None:
    gone = linked / DELTA
    (gone if is_target_left else gone.resolve()).unlink()
    with pytest.raises(UserError, match=r"^the jars cannot be kept in .*: set KQUOTA_JARS to a writable"):
        prepare_spark("enforce run")
