"""The log of a table stays short, so that commits and followers of an old table cost what those of a new one do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.schema.quota_tables import QUOTA_CHANGES, QUOTA_RULES
from kquota_spark.schema.tables import DECISIONS, TABLES, VIOLATIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_table, create_tables
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.table_log import KEPT_ENTRIES, trim_log
from tests.support.spark.queries import rows_of
from tests.support.tables.old_tables import age
from tests.support.tables.table_rows import decision
from tests.support.tables.written_parts import written


def entries(settings: Settings, name: str = "decisions") -> list[str]:
    """What is in the log of a table, by name."""
    log = Path(settings.tables) / name / "_delta_log"
    return sorted(file.name for file in log.iterdir() if file.name[0].isdigit())


def test_no_commit_of_any_table_cleans_its_log(settings: Settings) -> None:
    create_tables(settings)
    for declared in TABLES:
        assert declared.log_properties["delta.enableExpiredLogCleanup"] == "false"
    made = {path.name for path in Path(settings.tables).iterdir() if path.is_dir()}
    for declared in TABLES:
        if declared.name in made:
            found = DeltaTable(f"{settings.tables}/{declared.name}").metadata().configuration
            assert found.items() >= declared.log_properties.items()


@pytest.mark.parametrize(("declared", "kept"), [(DECISIONS, "1 days"), (QUOTA_RULES, "10 minutes")])
def test_entries_are_kept_for_longer_than_any_follower_is_behind(declared: Table, kept: str) -> None:
    assert declared.log_properties["delta.logRetentionDuration"] == f"interval {kept}"


def test_a_table_of_an_older_release_gets_the_properties_at_the_next_start(settings: Settings) -> None:
    for declared in (VIOLATIONS, QUOTA_CHANGES):
        shutil.rmtree(f"{settings.tables}/{declared.name}", ignore_errors=True)
        DeltaTable.create(
            f"{settings.tables}/{declared.name}",
            schema=declared.arrow_schema(),
            partition_by=list(declared.partition_by),
        )
    from kquota_spark.store.rules_tables import open_rules_table

    create_table(settings, VIOLATIONS)
    open_rules_table(settings.tables, QUOTA_CHANGES, None)
    for declared in (VIOLATIONS, QUOTA_CHANGES):
        table = DeltaTable(f"{settings.tables}/{declared.name}")
        assert table.metadata().configuration.items() >= declared.log_properties.items()
        version = table.version()
        create_table(settings, VIOLATIONS)
        open_rules_table(settings.tables, QUOTA_CHANGES, None)
        table.update_incremental()
        assert table.version() == version  # once


def test_a_log_keeps_its_newest_commits_and_the_checkpoint_below_them(settings: Settings) -> None:
    commits = BatchCommits(settings, DECISIONS)
    commits.add(written(settings, decision(0)), MicroBatch("q", 0))
    age(settings, "decisions", to_version=2_500)
    commits.add(written(settings, decision(1)), MicroBatch("q", 9_999))  # version 2,501
    # Checkpoints are those of every 100 commits: 99, 199, ... The one that is kept has 500 commits after it.
    assert trim_log(settings, "decisions") == 1_999 + 19
    assert entries(settings)[:2] == [f"{1_999:020}.checkpoint.parquet", f"{1_999:020}.json"]
    assert len([name for name in entries(settings) if name.endswith("json")]) == 2_502 - 1_999 >= KEPT_ENTRIES
    assert trim_log(settings, "decisions") == 0
    assert len(rows_of(settings, "decisions")) == 2
    again = BatchCommits(settings, DECISIONS)
    assert again.has(MicroBatch("q", 9_999))
    again.add(written(settings, decision(2)), MicroBatch("q", 10_000))
    assert len(rows_of(settings, "decisions")) == 3


def test_a_young_log_stays_as_it_is(settings: Settings) -> None:
    age(settings, "decisions", to_version=590)
    before = entries(settings)
    assert trim_log(settings, "decisions") == 0
    assert entries(settings) == before
    assert trim_log(settings, "no_such_table") == 0


def test_a_follower_whose_commits_are_gone_begins_anew(settings: Settings) -> None:
    follower, late = DeltaCommits(settings, "decisions"), DeltaCommits(settings, "decisions")
    for each in (follower, late):
        found = each.unread()
        assert found is not None
        each.read(found)
    age(settings, "decisions", to_version=240)
    found = follower.unread()
    assert found is not None
    assert (found.is_fresh, found.version) == (False, 200)  # at most 200 commits at a time
    log = Path(settings.tables) / "decisions" / "_delta_log"
    for version in range(100):
        (log / f"{version:020}.json").unlink()
    found = late.unread()
    assert found is not None
    assert (found.is_fresh, found.paths, found.version) == (True, (), 240)


def test_a_driver_that_slept_while_the_log_was_trimmed_commits_nothing(settings: Settings) -> None:
    """Its successor has committed the same micro-batch, and many more."""
    woken = BatchCommits(settings, DECISIONS)
    woken.add(written(settings, decision(0)), MicroBatch("q", 0))
    woken.newest()
    successor = BatchCommits(settings, DECISIONS)
    successor.add(written(settings, decision(1)), MicroBatch("q", 1))
    age(settings, "decisions", to_version=1_500)
    assert trim_log(settings, "decisions") > 0
    woken.add(written(settings, decision(1)), MicroBatch("q", 1))
    assert len(rows_of(settings, "decisions")) == 2
    # A query that had nothing to commit for as long goes on.
    woken.add(written(settings, decision(2)), MicroBatch("jmx", 1))
    assert len(rows_of(settings, "decisions")) == 3
