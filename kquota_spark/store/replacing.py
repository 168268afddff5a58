"""Replaces the rows of a period in one commit; the new ones were written as files by workers.

The commit is that of deltalake, as all commits of ours. It puts a file of the log in place only where there is none (a
hard link, or a conditional put), so of two writers of one version the second one is told so. Delta's own writer for
Spark first asks whether there is one and then renames, which is safe within one JVM only: on a local file system it
replaces a commit that another process has made in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
from deltalake import write_deltalake

from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.store.commits import BatchCommits, MicroBatch, retried
from kquota_spark.store.parts import Part, dataset_of
from kquota_spark.store.storage import delta_table


def replace_rows(settings: Settings, declared: Table, parts: Sequence[Part], condition: str) -> None:
    """Put the rows of files in the place of those for which a condition holds.

    Args:
        settings: where the tables are.
        declared: the table.
        parts: written and not committed; they are gone afterwards.
        condition: SQL of deltalake. It has to hold for the new rows too.

    Raises:
        UserError: other writers changed the same rows five times in a row.
    """
    paths = [part.path for part in parts]

    def replace() -> None:
        batches = dataset_of(settings, declared, paths).to_batches() if paths else ()
        rows = pa.RecordBatchReader.from_batches(declared.arrow_schema(), batches)
        write_deltalake(delta_table(settings, declared.name), rows, mode="overwrite", predicate=condition)

    try:
        retried(replace)
    finally:
        BatchCommits(settings, declared).discard(parts)


def add_rows(settings: Settings, declared: Table, parts: Sequence[Part]) -> None:
    """Commit files as rows that no follower of the table takes for new ones.

    Args:
        settings: where the tables are.
        declared: the table.
        parts: written and not committed.
    """
    if parts:
        once = MicroBatch(uuid.uuid4().hex, 0)
        BatchCommits(settings, declared).add(parts, once, is_news=False)
