"""Archived request logs come into `requests` once and whole, as the job would have parsed them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.checkpoints.driver_lock import driver_lock
from kquota_spark.cli.main import main
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.checks import run_checks
from kquota_spark.formats.request_log.line import RequestLogParser
from kquota_spark.store.creation import create_tables, has_rows
from tests.support.places import DATA
from tests.support.tables.table_rows import request, write_table

CAPTURE = DATA / "zk39-plain" / "broker-7.kafka-request.log.gz"


def _lines() -> list[bytes]:
    with gzip.open(CAPTURE) as file:
        return file.read().splitlines()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "kquota.yaml"
    path.write_text(f"cluster_id: past\ntables: {tmp_path}/tables\ncheckpoints: {tmp_path}/checkpoints\n")
    return path


def _requests(root: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(root / "tables" / "requests")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["kafka_offset"]))


def test_every_line_of_a_capture_is_a_row_with_the_bytes_that_the_parser_finds(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backfill", "--config", str(config), "--file", f"7={CAPTURE}"]) == 0
    told = capsys.readouterr().err.splitlines()
    # The lines are from 05:38:17 until 05:40:05.
    again = f"kquota restate --from 2026-11-21T05:38:17Z --to 2026-11-21T05:40:06Z --config {config}"
    assert told[1:] == [f"next: {again}"]
    lines = _lines()
    assert told[0].startswith(f"{CAPTURE}: {len(lines):,} lines, 2026-")
    rows = _requests(tmp_path)
    parser = RequestLogParser("UTC")
    assert [row["charged_bytes"] for row in rows] == [parser.parse(line).charged_bytes for line in lines]
    assert [row["kafka_offset"] for row in rows] == list(range(len(lines)))
    assert {(row["cluster_id"], row["broker_id"], row["partition"], row["kind"]) for row in rows} == {
        ("past", 7, 7, "request")
    }
    settings = Settings(cluster_id="past", tables=f"{tmp_path}/tables")
    found = {check.what: check.status.name for check in run_checks(settings, lambda: 0)}
    assert (found["lines"], found["offsets"]) == ("OK", "OK")


def test_a_file_is_taken_once_whatever_its_name_and_its_compression(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "kafka-request.log.2026-11-20"
    first.write_bytes(b"\n".join(_lines()[:20]) + b"\n")
    assert main(["backfill", "--config", str(config), "--file", f"1={first}"]) == 0
    with first.open("rb") as text, gzip.open(tmp_path / "other.gz", "wb") as packed:
        shutil.copyfileobj(text, packed)
    capsys.readouterr()
    for again in (first, tmp_path / "other.gz"):
        assert main(["backfill", "--config", str(config), "--file", f"1={again}"]) == 1
        assert capsys.readouterr().err == (
            f"kquota: {again}: its beginning is that of {first.name}, of which 20 lines are in requests already: "
            "a file is taken once\n"
        )
    assert len(_requests(tmp_path)) == 20


def test_a_pattern_takes_several_and_lines_that_cannot_be_read_are_kept(tmp_path: Path, config: Path) -> None:
    lines = _lines()
    (tmp_path / "log.1").write_bytes(b"\n".join([*lines[:3], b"cut off"]) + b"\n")
    (tmp_path / "log.2").write_bytes(b"\n".join(lines[3:5]) + b"\n")
    assert main(["backfill", "--config", str(config), "--file", f"1={tmp_path}/log.?"]) == 0
    rows = _requests(tmp_path)
    assert sorted((row["topic"].split(":")[2], row["kafka_offset"], row["kind"]) for row in rows) == [
        ("log.1", 0, "request"),
        ("log.1", 1, "request"),
        ("log.1", 2, "request"),
        ("log.1", 3, "unreadable"),
        ("log.2", 0, "request"),
        ("log.2", 1, "request"),
    ]


def test_a_damaged_file_adds_nothing(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(CAPTURE.read_bytes()[:200_000])
    assert main(["backfill", "--config", str(config), "--file", f"7={cut}"]) == 1
    error = capsys.readouterr().err
    assert error == f"kquota: {cut}: the compressed file ends in the middle: fetch it again\n"
    assert _requests(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x", "--file: 'x', expected <broker id>=<path or pattern>, e.g. "),
        ("a=b", "--file: 'a=b', expected <broker id>=<path or pattern>, e.g. "),
        ("1=/nowhere/x*", "--file: '1=/nowhere/x*': no such file"),
    ],
)
def test_mistakes_are_one_line(
    text: str, error: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backfill", "--config", str(config), "--file", text]) == 1
    assert capsys.readouterr().err.startswith(f"kquota: {error}")


def test_it_waits_for_no_running_job(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with driver_lock(str(tmp_path / "checkpoints"), "log"):
        assert main(["backfill", "--config", str(config), "--file", f"7={CAPTURE}"]) == 1
    assert "are in use by another driver" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()


def test_archived_files_are_no_rows_of_the_job(tmp_path: Path, config: Path) -> None:
    settings = Settings(cluster_id="past", tables=f"{tmp_path}/tables")
    create_tables(settings)
    assert not has_rows(settings, "requests")
    assert main(["backfill", "--config", str(config), "--file", f"7={CAPTURE}"]) == 0
    assert not has_rows(settings, "requests")
    write_table(tmp_path / "tables", "requests", request(0, cluster_id="past"))
    assert has_rows(settings, "requests")
