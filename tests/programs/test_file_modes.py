"""Who may read what the commands write: pages and lists about clients are for the owner and the group."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import DATA, ROOT
from tests.support.tables.audited_tables import tables

PERIOD = "2026-11-21..2026-11-22"
LOG = DATA / "zk39-plain" / "broker-7.kafka-request.log.gz"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with tables and settings that nobody wrote under an umask of a test."""
    tables(tmp_path / "past")
    text = "cluster_id: demo\ntables: {0}/past\nquotas: {{source: file, file: {0}/q.yaml}}\n"
    (tmp_path / "kquota.yaml").write_text(text.format(tmp_path), encoding="utf-8")
    (tmp_path / "q.yaml").write_text("- {user: alice, type: producer_byte_rate, value: 1}\n")
    return tmp_path


def run(root: Path, umask: int, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words, "--config", str(root / "kquota.yaml")],
        cwd=root, env={**os.environ, "PYTHONPATH": str(ROOT)}, umask=umask, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def kquota(root: Path, umask: int, *words: str) -> None:
    run(root, umask, "-m", "kquota_spark.cli.main", *words)


def modes(*places: Path) -> dict[str, str]:
    """Each file and folder at and below some places, and its rights."""
    found = [path for place in places for path in (place, *place.rglob("*"))]
    assert found
    return {str(path): oct(stat.S_IMODE(path.stat().st_mode)) for path in found}


def expected(*places: Path, file: str, folder: str) -> dict[str, str]:
    return {
        str(path): folder if path.is_dir() else file
        for place in places
        for path in (place, *place.rglob("*"))
    }


def test_pages_are_for_owner_and_group_whatever_the_umask(root: Path) -> None:
    for umask in (0o022, 0o000):
        reports, page = root / f"reports-{umask}", root / f"page-{umask}.html"
        run(
            root, umask, str(ROOT / "jobs" / "report.py"),
            "--period", PERIOD, "--folder", str(reports), "--tenants", "all",
        )  # fmt: skip
        kquota(root, umask, "report", "--period", PERIOD, "--to", str(page))
        found = modes(reports, page)
        assert len([path for path in found if path.endswith(".html")]) == 5
        assert found == expected(reports, page, file="0o640", folder="0o750")


def test_a_page_that_is_there_keeps_its_rights(root: Path) -> None:
    page = root / "page.html"
    for mode in (0o644, 0o600):
        page.write_text("old")
        page.chmod(mode)
        kquota(root, 0o022, "report", "--period", PERIOD, "--to", str(page))
        assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
        assert stat.S_IMODE(page.stat().st_mode) == mode


def test_under_the_umask_of_the_units_all_is_for_owner_and_group(root: Path) -> None:
    """UMask=0027 of conf/systemd; Spark's files are looked at in tests/fault."""
    config = root / "kquota.yaml"
    new = root / "new"
    config.write_text(config.read_text("utf-8").replace(f"{root}/past", f"{new}/tables"), encoding="utf-8")
    new.mkdir(mode=0o750)
    kquota(root, 0o027, "backfill", "--file", f"7={LOG}")
    kquota(root, 0o027, "watch", "--once")
    kquota(root, 0o027, "freeze", "--reason", "a test")
    found = modes(new)
    assert any("requests/event_date=" in path for path in found)
    assert any("quota_rules" in path for path in found)
    assert found == expected(new, file="0o640", folder="0o750")
