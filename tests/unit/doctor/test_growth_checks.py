"""`kquota doctor` names who sends very many client ids, and from where."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.doctor.checks import MANY_CLIENT_IDS, growth_checks
from kquota_spark.process.check import Check, Status
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.reading import open_tables
from tests.support.tables.table_rows import request, write_table


def checks(root: Path) -> list[Check]:
    with open_tables(Settings(tables=str(root)), "requests") as tables:
        return growth_checks(tables)


def test_a_user_with_random_client_ids_is_named_with_its_address(tmp_path: Path) -> None:
    count = MANY_CLIENT_IDS * 2
    known = [request(index, client_id=f"app-{index % 10}", user="bob") for index in range(100)]
    write_table(tmp_path, "requests", *known)
    like = request(0, user="mallory")
    rows = [
        {
            **dict.fromkeys(REQUESTS.names),
            **like,
            "kafka_offset": index,
            "client_id": f"{index:032x}",
            # Nine of ten from one address; the other one speaks IPv6 to a newer broker.
            "connection": f"10.0.0.1:9092-10.1.2.3:{40_000 + index % 999}-7"
            if index % 10
            else "0:0:0:0:0:0:0:1:9092-fd00:0:0:0:0:0:0:9:40001-0-12",
        }
        for index in range(count)
    ]
    table = pa.Table.from_pylist(rows, schema=REQUESTS.arrow_schema())
    write_deltalake(str(tmp_path / "requests"), table, mode="append")
    (found,) = checks(tmp_path)
    assert (found.status, found.what) == (Status.WARN, "client ids")
    assert found.evidence.startswith("demo: user mallory sends about ")
    assert f" client ids in {count:,} requests, " in found.evidence
    assert found.evidence.endswith(" of them from 10.1.2.3")


def test_a_few_client_ids_are_no_finding(tmp_path: Path) -> None:
    write_table(tmp_path, "requests", *(request(index, client_id=f"app-{index % 3}") for index in range(9)))
    assert checks(tmp_path) == []


def test_an_address_of_a_newer_broker_is_read(tmp_path: Path) -> None:
    connection = "0:0:0:0:0:0:0:1:9092-fd00:0:0:0:0:0:0:9:40001-0-12"
    write_table(tmp_path, "requests", request(1, connection=connection))
    with open_tables(Settings(tables=str(tmp_path)), "requests") as tables:
        from kquota_spark.doctor.checks import _SOURCE

        assert tables.query(_SOURCE, ["demo", "alice"]).rows == [("fd00:0:0:0:0:0:0:9", 1)]
