"""Tables and checkpoints on S3: the commands write and read them with the options of the settings alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.checkpoints.checkpoints import Checkpoint
from kquota_spark.checkpoints.lineage import require_lineage
from kquota_spark.cli.main import main
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.budgets.budgets import Budget
from kquota_spark.process.metrics import exposition
from kquota_spark.reports.budgets.day_roll_up import BudgetRollUp
from kquota_spark.reports.budgets.grouping import by_user
from kquota_spark.reports.budgets.owned_budgets import budgets_at
from kquota_spark.reports.exported.tables import ExportedTables
from kquota_spark.reports.right_sizes.demand_roll_up import DemandRollUp
from kquota_spark.rightsize.kept_days import open_history
from kquota_spark.rightsize.recommended import Recommendation, recommendations
from kquota_spark.rightsize.windows import Asked
from kquota_spark.schema.columns import Table
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store import table_log
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_tables
from kquota_spark.store.dated_files import DAY_MS
from kquota_spark.store.following import DeltaCommits
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.reading import Tables, query
from kquota_spark.store.rules_tables import RulesTables
from kquota_spark.store.storage import delta_table, storage_options
from kquota_spark.store.table_log import trim_log
from tests.right_size.tables import FIRST, write_weeks
from tests.support.places import DATA
from tests.support.programs.exposition_format import parsed_exposition
from tests.support.programs.receivers import http_receiver
from tests.support.programs.s3_server import keys, put, s3_server
from tests.support.reports.kept_budgets import kept_dates
from tests.support.tables.table_rows import T0_MS, decision, violation
from tests.support.tables.written_parts import written

CAPTURE = DATA / "zk39-plain" / "broker-7.kafka-request.log.gz"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """Settings of tables on S3, and where it is."""
    monkeypatch.setenv("S3_SECRET", "canary-of-a-secret")
    with s3_server() as endpoint:
        config = tmp_path / "kquota.yaml"
        config.write_text(
            "cluster_id: past\ntables: s3a://lake/kquota/tables\ncheckpoints: s3a://lake/kquota/checkpoints\n"
            f"storage_options: {{AWS_ENDPOINT_URL: '{endpoint}', AWS_REGION: us-east-1, AWS_ALLOW_HTTP: 'true',\n"
            "  AWS_ACCESS_KEY_ID: key, AWS_SECRET_ACCESS_KEY: '${S3_SECRET}'}\n"
        )
        yield config, endpoint


def test_backfill_writes_there_and_doctor_reads_it(
    bucket: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, endpoint = bucket
    log = tmp_path / "broker-7.log"
    with gzip.open(CAPTURE) as file:
        log.write_bytes(b"".join(file.readlines()[:500]))
    assert main(["backfill", "--config", str(config), "--file", f"7={log}"]) == 0
    assert main(["backfill", "--config", str(config), "--file", f"7={log}"]) == 1  # it is known again
    capsys.readouterr()
    main(["doctor", "--all", "--config", str(config)])
    told = capsys.readouterr()
    assert "500 lines = 500 requests + 0 unreadable + 0 heartbeats" in told.out
    assert main(["usage", "--config", str(config)]) == 0
    assert main(["tables", "requests", "--sql", "trino", "--config", str(config)]) == 0
    assert "table_location => 's3a://lake/kquota/tables/requests'" in capsys.readouterr().out
    assert any(key.startswith("kquota/tables/requests/event_date=") for key in keys(endpoint, "lake"))
    assert "canary" not in told.out + told.err


def test_the_quotas_are_written_there(bucket: tuple[Path, str]) -> None:
    settings = load_settings(bucket[0])
    storage = storage_options(settings)
    for _ in range(2):  # the second one finds the first one's tables
        rules = RulesTables(settings.tables, "past", source="zookeeper", apply_lag_ms=0, storage=storage)
        rules.write_rules(1_795_239_600_000)
    assert rules.known_through_ms == 1_795_239_600_000


def test_a_checkpoint_is_seen_there(bucket: tuple[Path, str]) -> None:
    config, endpoint = bucket
    settings = load_settings(config)
    assert not Checkpoint.of(settings, "log").exists
    place = "lake/kquota/checkpoints/log"
    put(endpoint, f"{place}/metadata", b'{"id":"x"}')
    for batch in (0, 1):
        offset = json.dumps({"kquota.request-log": {"0": 100 * batch}})
        put(endpoint, f"{place}/offsets/{batch}", f"v1\n{{}}\n{offset}".encode())
    put(endpoint, f"{place}/commits/0", b"v1\n{}")
    found = Checkpoint.of(settings, "log")
    assert (found.exists, found.last_batch, found.planned_batches) == (True, 0, [0, 1])
    assert found.source_offset(1) == {"kquota.request-log": {"0": 100}}


def append(settings: Settings, table: Table, row: dict[str, Any]) -> None:
    """Commit a row of the cluster."""
    whole = dict.fromkeys(table.names) | row | {"cluster_id": "past"}
    write_deltalake(
        f"s3://lake/kquota/tables/{table.name}",
        pa.Table.from_pylist([whole], schema=table.arrow_schema()),
        mode="append",
        partition_by=list(table.partition_by),
        storage_options=storage_options(settings),
    )


def test_the_outbox_of_notifications_is_kept_there(bucket: tuple[Path, str]) -> None:
    config, endpoint = bucket
    append(load_settings(config), VIOLATIONS, violation(0, None))
    with http_receiver() as received:
        route = f"{{kind: webhook, secret: sixteen-letters-, url: '{received.url}'}}"
        with config.open("a", encoding="utf-8") as file:
            file.write(f"notifications: {{routes: {{ops: {route}}}}}\n")
        assert [main(["notify", "--once", "--config", str(config)]) for _ in range(2)] == [0, 0]
    assert [event["event_id"] for post in received.posts for event in json.loads(post.body)["events"]] == [
        "past/violation/e0"
    ]
    assert "kquota/tables/_kquota/notify-past.json" in keys(endpoint, "lake")


def test_the_exporter_follows_decisions_there(bucket: tuple[Path, str]) -> None:
    settings = load_settings(bucket[0])
    exported = ExportedTables(settings, 10)
    for second_s in (0, 1):
        append(settings, DECISIONS, decision(second_s))
        exported.refresh(T0_MS + 5_000)
    exported.count_refresh(T0_MS + 5_000, 0.1, is_failed=False)
    found = parsed_exposition(exposition(exported.exposed(T0_MS + 5_000).at(T0_MS + 5_000)))
    # That of the second commit; the first was there before.
    assert list(found["kquota_bucket_bytes_total"].values()) == [1_000]


def test_parts_of_workers_are_committed_merged_and_read_there(bucket: tuple[Path, str]) -> None:
    settings = load_settings(bucket[0]).changed(cluster_id="demo")
    create_tables(settings)
    assert require_lineage(settings, ["log"], is_new=False) == []
    commits, batch = BatchCommits(settings, DECISIONS), MicroBatch("q", 0)
    above = {"rate_per_s": 1.5e6, "quota_used_percent": 150.0, "throttled_requests": 2}
    parts = written(settings, decision(0, **above), decision(1))
    commits.require_there(parts)
    commits.add(parts, batch)
    decided = BatchCommits(settings, DECISIONS).rows_of(batch)
    assert decided is not None
    judged = judged_rows(decided, settings.stream.episode_gap)
    EpisodeFold(settings).fold(judged, batch, T0_MS)
    counts = "select (select count(*) from decisions), (select count(*) from violations)"
    assert query(settings, ["decisions", "violations"], counts).rows == [(2, 1)]
    lost = [parts[0]._replace(path="event_date=2026-11-21/part-lost.snappy.parquet")]
    with pytest.raises(
        UserError, match=r"part-lost.* is not under s3a://lake/kquota/tables as the driver sees"
    ):
        BatchCommits(settings, DECISIONS).require_there(lost)
    with pytest.raises(UserError, match=r"^checkpoint .*/log is missing, but table decisions has rows"):
        require_lineage(settings, ["log"], is_new=False)


def test_small_files_are_packed_and_the_log_is_trimmed_there(
    bucket: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(bucket[0]).changed(cluster_id="demo")
    create_tables(settings)
    follower = DeltaCommits(settings, "decisions")
    found = follower.unread()
    assert found is not None
    follower.read(found)
    commits = BatchCommits(settings, DECISIONS)
    for number in range(4):
        commits.add(written(settings, decision(number)), MicroBatch("q", number))
    assert pack(settings, DECISIONS, small_files(delta_table(settings, "decisions")))
    assert query(settings, ["decisions"], "select count(*) from decisions").rows == [(4,)]
    # A follower that comes later reads the files as they were committed.
    found = follower.unread()
    assert found is not None
    with Tables(settings) as tables:
        tables.open_files("decisions", found.paths)
        assert tables.query("select count(*), count(distinct event_date) from decisions").rows == [(4, 1)]
    delta_table(settings, "decisions").write_checkpoint()  # of version 5
    commits.add(written(settings, decision(5)), MicroBatch("q", 5))
    monkeypatch.setattr(table_log, "KEPT_ON_STORES", 1)
    assert trim_log(settings, "decisions") == 5
    assert query(settings, ["decisions"], "select count(*) from decisions").rows == [(5,)]


def test_kept_days_give_the_answers_of_the_rows_there(bucket: tuple[Path, str], tmp_path: Path) -> None:
    config, endpoint = bucket
    local = Settings(cluster_id="weeks", tables=str(write_weeks(tmp_path / "weeks", 16).parent / "tables"))
    for file in Path(local.tables).rglob("*"):
        if file.is_file():
            put(endpoint, f"lake/kquota/tables/{file.relative_to(local.tables)}", file.read_bytes())
    there = load_settings(config).changed(cluster_id="weeks")
    days = [FIRST.date() + timedelta(days=number) for number in range(15)]
    for of_run in (DemandRollUp, BudgetRollUp):
        runs = [[of_day(there, day) is not None for day in days] for of_day in (of_run(), of_run())]
        assert runs == [[True] * 15, [False] * 15]  # what is kept holds
    from_ms = round(FIRST.timestamp() * 1_000)
    to_ms = from_ms + 16 * DAY_MS
    assert kept_dates(there, to_ms, by_user()) == [day.isoformat() for day in days]
    with Tables(there) as tables:
        assert open_history(tables, Asked("weeks", from_ms, to_ms))
    found = [_sizes_and_budgets(settings, to_ms) for settings in (there, local)]
    assert found[0] == found[1] and [one.place.user for one in found[0][0]] == [
        "alice",
        "bob",
        "carol",
        "dave",
        "erin",
    ]


def _sizes_and_budgets(settings: Settings, to_ms: int) -> tuple[list[Recommendation], dict[str, Budget]]:
    with Tables(settings) as tables:
        sizes = recommendations(tables, "weeks", to_ms)
    with Tables(settings) as tables:
        found = budgets_at(tables, "weeks", to_ms, by_user()).found
    return sizes, {one.name: one.budget for one in found}
