"""Tables of an older release are extended when the job starts, those of a newer one refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.columns import SCHEMA_VERSION, VERSION_PROPERTY
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE, VIOLATIONS
from kquota_spark.store.creation import create_tables, has_rows
from tests.support.tables.table_rows import usage, write_table

LEFT_OUT = "principal_type"


def settings_at(root: Path) -> Settings:
    return Settings(cluster_id="demo", tables=str(root))


def table(root: Path, name: str) -> DeltaTable:
    return DeltaTable(str(root / name))


def of_before(root: Path, *, without: str = LEFT_OUT) -> None:
    """`usage` as a release made it that knew nothing of a column and of versions; one row is in it."""
    schema = USAGE.arrow_schema()
    schema = schema.remove(schema.get_field_index(without))
    DeltaTable.create(str(root / "usage"), schema=schema, partition_by=["event_date"])
    import pyarrow as pa
    from deltalake import write_deltalake

    row = usage()
    row.pop(without)
    write_deltalake(str(root / "usage"), pa.Table.from_pylist([row], schema=schema), mode="append")


def test_new_tables_carry_the_version(tmp_path: Path) -> None:
    create_tables(settings_at(tmp_path))
    for declared in (REQUESTS, USAGE, DECISIONS, VIOLATIONS):
        assert table(tmp_path, declared.name).metadata().configuration[VERSION_PROPERTY] == str(
            SCHEMA_VERSION
        )
        assert table(tmp_path, declared.name).version() == 0
        assert not has_rows(settings_at(tmp_path), declared.name)
    create_tables(settings_at(tmp_path))
    assert table(tmp_path, "usage").version() == 0


def test_a_table_of_an_older_release_gets_the_new_columns_and_keeps_its_rows(tmp_path: Path) -> None:
    of_before(tmp_path)
    create_tables(settings_at(tmp_path))
    extended = table(tmp_path, "usage")
    names = [field.name for field in extended.schema().fields]
    assert sorted(names) == sorted(USAGE.names)
    assert names[-1] == LEFT_OUT
    (row,) = extended.to_pyarrow_table().to_pylist()
    assert (row["user"], row["requests"], row[LEFT_OUT]) == ("alice", 1, None)
    assert extended.metadata().configuration[VERSION_PROPERTY] == str(SCHEMA_VERSION)
    assert has_rows(settings_at(tmp_path), "usage")
    # And new rows go in by name, wherever the column stands.
    write_table(tmp_path, "usage", usage(1, principal_type="User"))
    rows = table(tmp_path, "usage").to_pyarrow_table().to_pylist()
    assert sorted(str(row[LEFT_OUT]) for row in rows) == ["None", "User"]


def test_a_table_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    create_tables(settings_at(tmp_path))
    newer = str(SCHEMA_VERSION + 1)
    table(tmp_path, "decisions").alter.set_table_properties(
        {VERSION_PROPERTY: newer}, raise_if_not_exists=False
    )
    with pytest.raises(
        UserError, match=rf"^table decisions at .* was made by a newer release \(schema {newer}, "
    ):
        create_tables(settings_at(tmp_path))


def test_a_table_with_columns_of_somebody_else_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "usage"), schema=DECISIONS.arrow_schema())
    with pytest.raises(UserError, match=r"^table usage at .* has other columns than this release writes: "):
        create_tables(settings_at(tmp_path))
