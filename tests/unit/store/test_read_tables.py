"""How tables are found and read: missing, of an older release, at an awkward path, and no file too many."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.process.time_limit import SlowError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import Tables, open_tables, query
from tests.support.tables.table_rows import T0_MS, decision, run, write_table


def test_a_missing_table_or_path_is_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which has no conf/kquota.yaml
    advice = "run the audit first, or name its settings: --config FILE\n"
    assert run("decisions", "--tables", str(tmp_path)) == 1
    assert capsys.readouterr().out == f"kquota: table decisions is missing under {tmp_path}: {advice}"
    assert run("decisions", "--tables", str(tmp_path / "none")) == 1
    assert capsys.readouterr().out == f"kquota: tables path {tmp_path / 'none'} does not exist: {advice}"
    file = tmp_path / "file"
    file.touch()
    assert run("decisions", "--tables", str(file)) == 1
    assert (
        capsys.readouterr().out == f"kquota: tables path {file} is no folder: name the root of the tables\n"
    )
    config = tmp_path / "prod.yaml"
    config.write_text(f"tables: {tmp_path}/none\n", encoding="utf-8")
    assert run("decisions", "--config", str(config)) == 1
    audit = f"kquota audit --config {config}"
    assert capsys.readouterr().out == (
        f"kquota: tables path {tmp_path}/none does not exist: run the audit first ({audit}) "
        f"or check tables: in {config}\n"
    )


def test_a_table_of_an_older_release_reads_its_missing_columns_as_null(tmp_path: Path) -> None:
    schema = DECISIONS.arrow_schema()
    older = pa.schema([field for field in schema if field.name != "users"])
    row = {name: value for name, value in decision(0).items() if name != "users"}
    path = str(tmp_path / "decisions")
    write_deltalake(path, pa.Table.from_pylist([row], schema=older), partition_by=["event_date"])
    newer = pa.Table.from_pylist([decision(1)], schema=schema)
    write_deltalake(path, newer, mode="append", schema_mode="merge")
    found = query(
        Settings(tables=str(tmp_path)),
        ["decisions"],
        "select epoch_ms(second), event_date::varchar, users from decisions order by 1",
    )
    assert found.rows == [(T0_MS, "2026-11-21", None), (T0_MS + 1_000, "2026-11-21", ["alice"])]


def test_awkward_paths_and_all_columns_without_pytz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # DuckDB needs pytz for times with a zone, and takes stars in a path for a pattern.
    monkeypatch.setitem(sys.modules, "pytz", None)
    root = tmp_path / "my 'tables' ä*?"
    write_table(root, "decisions", decision(0))
    assert run("decisions", "--tables", str(root), "--output", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
    assert run("decisions", "--tables", root.as_uri(), "--output", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


def _second_ms(file: str) -> int:
    (found,) = pq.read_table(file, columns=["second"]).column("second").cast(pa.int64()).to_pylist()
    assert found is not None
    return int(found) // 1_000


def test_files_older_than_asked_for_are_not_read(tmp_path: Path) -> None:
    write_table(tmp_path, "decisions", decision(0))
    write_table(tmp_path, "decisions", decision(100))
    older = [
        file for file in DeltaTable(str(tmp_path / "decisions")).file_uris() if _second_ms(file) == T0_MS
    ]
    Path(older[0]).unlink()  # reading it would be an error
    with open_tables(Settings(tables=str(tmp_path)), "decisions", newer_than_ms=T0_MS + 100_000) as tables:
        assert tables.query("select epoch_ms(second) from decisions").rows == [(T0_MS + 100_000,)]
        assert tables.newest_ms("decisions") == T0_MS + 100_000
    with open_tables(Settings(tables=str(tmp_path)), "decisions", newer_than_ms=T0_MS + 101_000) as tables:
        assert tables.query("select count(*) from decisions").rows == [(0,)]
        assert tables.newest_ms("decisions") == T0_MS + 100_000


def test_the_tables_are_described_from_their_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tables", "quota_rules") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quota_rules: quotas of one entity over one period of time;")
    assert "  producer_byte_rate        double     bytes per second per broker; null if not set" in lines
    assert max(map(len, lines)) <= 100
    assert run("tables", "violations", "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[1] == {
        "table": "violations",
        "column": "event_date",
        "type": "date",
        "is_partition": True,
        "about": "UTC date of the row's time; partition, and the unit of retention",
    }


def test_a_query_of_hours_ends_at_the_time_limit_and_so_do_all_after_it(tmp_path: Path) -> None:
    with Tables(Settings(tables=str(tmp_path)), most_s=0.2) as tables:
        for sql in (
            "select sum(a.range * b.range) from range(10_000_000) a, range(10_000_000) b",
            "select 1",
        ):
            with pytest.raises(SlowError) as ended:
                tables.query(sql)
            assert str(ended.value) == "reading the tables takes longer than 0.2 s: ask for a shorter period"


def test_a_query_within_the_time_limit_is_answered(tmp_path: Path) -> None:
    with Tables(Settings(tables=str(tmp_path)), most_s=3_600.0) as tables:
        assert tables.query("select 6 * 7").rows == [(42,)]
