"""`kquota tables --sql`: literal statements, for the tables that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.tables.table_rows import request, write_table

EXPECTED = {
    "spark": "CREATE TABLE IF NOT EXISTS kquota.requests USING DELTA LOCATION '{where}';",
    "trino": "CALL delta.system.register_table(schema_name => 'kquota', table_name => 'requests', "
    "table_location => '{where}');",
    "duckdb": "CREATE OR REPLACE VIEW kquota.requests AS SELECT * FROM delta_scan('{where}');",
}


@pytest.mark.parametrize("engine", EXPECTED)
def test_statements_name_the_place_of_a_table(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "it's here"
    write_table(root, "requests", request(0))
    assert main(["tables", "requests", "--sql", engine, "--tables", str(root)]) == 0
    where = str(root / "requests").replace("'", "''")
    assert capsys.readouterr().out.splitlines()[1:] == [EXPECTED[engine].format(where=where)]


def test_a_table_that_is_not_there_yet_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "usage", "--sql", "spark", "--tables", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["-- usage: not there yet"]
