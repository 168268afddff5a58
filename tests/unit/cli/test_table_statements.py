"""`kquota tables --sql`: literal statements, for the tables that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.programs.command_output import as_json
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


def test_statements_have_the_other_forms_of_output_too(tmp_path: Path) -> None:
    [schema, usage] = as_json("tables", "usage", "--sql", "spark", "--tables", str(tmp_path))["rows"]
    assert schema == {"statement": "CREATE SCHEMA IF NOT EXISTS kquota;"}
    assert usage == {"statement": "-- usage: not there yet"}


def test_an_unknown_table_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tables", "nosuch"])
    assert capsys.readouterr().err.splitlines()[0] == (
        "kquota tables: unknown value of NAME 'nosuch', expected one of requests, usage, decisions, "
        "shadow_decisions, violations, causes, jmx_samples, quota_changes, quota_rules, partition_leaders, log_gaps, "
        "agreement, edit_impact, budget_days, demand_days, broker_configs, enforcement_log"
    )
