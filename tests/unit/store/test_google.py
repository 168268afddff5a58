"""Tables and checkpoints on Google's object store: a key file of the settings is all that they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.checkpoints.checkpoints import Checkpoint
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_table
from kquota_spark.store.reading import query
from tests.support.programs.google_server import google_server
from tests.support.programs.s3_server import keys, put
from tests.support.tables.table_rows import decision
from tests.support.tables.written_parts import written


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[Settings, str]]:
    """Settings of tables there, and where it is; only the key file has the address."""
    config, key_file = tmp_path / "kquota.yaml", tmp_path / "key.json"
    config.write_text(
        "cluster_id: demo\ntables: gs://lake/kquota/tables\ncheckpoints: gs://lake/kquota/checkpoints\n"
        f"storage_options: {{GOOGLE_SERVICE_ACCOUNT: '{key_file}', allow_http: 'true'}}\n"
    )
    with google_server(key_file) as address:
        yield load_settings(config), address


def test_parts_of_workers_are_committed_once_and_read_there(bucket: tuple[Settings, str]) -> None:
    settings, address = bucket
    create_table(settings, DECISIONS)
    first, second = (BatchCommits(settings, DECISIONS) for _ in range(2))
    batch = MicroBatch("q", 0)
    parts = written(settings, decision(0), decision(1))
    first.require_there(parts)
    assert not second.has(batch)
    first.add(parts, batch)
    # The second one has seen the table before that commit.
    second.add(written(settings, decision(0), decision(1)), batch)
    found = first.rows_of(batch)
    assert found is not None
    assert found.num_rows == 2
    assert query(settings, ["decisions"], "select count(*) from decisions").rows == [(2,)]
    files = [key for key in keys(address, "lake") if key.endswith(".parquet")]
    assert files == [f"kquota/tables/decisions/{parts[0].path}"]


def test_notes_and_checkpoints_are_written_and_read_there(bucket: tuple[Settings, str]) -> None:
    settings, address = bucket
    note = f"{settings.checkpoints}/log.run.json"
    assert read_note(settings, note) is None
    for text in (b"one", b"two"):
        write_note(settings, note, text)
    assert read_note(settings, note) == b"two"
    assert not Checkpoint.of(settings, "log").exists
    put(address, "lake/kquota/checkpoints/log/metadata", b'{"id":"x"}')
    put(address, "lake/kquota/checkpoints/log/offsets/0", b"v1")
    found = Checkpoint.of(settings, "log")
    assert (found.exists, found.query_id, found.planned_batches) == (True, "x", [0])
