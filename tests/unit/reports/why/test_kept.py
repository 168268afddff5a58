"""The table `causes`: what was kept is what a replay finds, once, and for as long as the violation is the same."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.keeping import KeptCauses
from kquota_spark.reports.why.reasons import Bounds, UseOfKept, reasons
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.sentences import main_sentence, short_text
from tests.support.attribution.labelled import CAUSES
from tests.support.attribution.simulated import FROM_MS, TO_MS
from tests.support.attribution.tables import write_recording
from tests.support.chance import Chance
from tests.support.programs.command_output import as_json
from tests.support.tables.table_rows import T0_MS, decision, request, usage, write_table

DAY = date(2026, 11, 21)
WANTED = Wanted(BucketName("produce", "", "app"), FROM_MS, TO_MS)


def _written(root: Path, cause: Cause) -> Settings:
    write_recording(root, CAUSES[cause](Chance(4)), Entity(client_id="app"))
    return Settings(cluster_id="demo", tables=str(root))


def _rows(settings: Settings) -> list[dict[str, Any]]:
    return DeltaTable(f"{settings.tables}/causes").to_pyarrow_table().to_pylist()


def _without_usage(settings: Settings) -> Settings:
    shutil.rmtree(Path(settings.tables) / "usage")
    return settings


def _of_replay(settings: Settings) -> Reasons:
    return reasons(settings, [WANTED], Bounds(kept=UseOfKept.NEVER)).found[WANTED]


@pytest.mark.parametrize(
    "cause", [Cause.BURST, Cause.REPEATS, Cause.SHARED_BUCKET], ids=lambda cause: cause.value
)
def test_the_kept_answer_is_that_of_the_replay_and_outlives_the_requests(
    cause: Cause, tmp_path: Path
) -> None:
    settings = _written(tmp_path, cause)
    by_replay = _of_replay(settings)
    assert KeptCauses()(settings, DAY) == 1
    kept = reasons(_without_usage(settings), [WANTED]).found[WANTED]
    slowed = None if kept.sharing is None else kept.sharing.clients
    assert slowed == (None if by_replay.sharing is None else by_replay.sharing.clients)
    assert replace(kept, sharing=None) == replace(by_replay, sharing=None, fairness=())
    assert (main_sentence(kept), short_text(kept)) == (main_sentence(by_replay), short_text(by_replay))
    assert reasons(settings, [WANTED], Bounds(kept=UseOfKept.LAST)).found == {WANTED: kept}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a bucket that is steady at its limit, without causes."""
    root = tmp_path_factory.mktemp("recorded")
    _written(root, Cause.STEADY)
    return root


def _copied(recorded: Path, root: Path) -> Settings:
    shutil.copytree(recorded, root, dirs_exist_ok=True)
    return Settings(cluster_id="demo", tables=str(root))


def _changed(settings: Settings, **figures: Any) -> None:
    """The violation with other figures, as after `kquota restate`."""
    path = f"{settings.tables}/violations"
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    shutil.rmtree(path)
    write_table(Path(settings.tables), "violations", *({**row, **figures} for row in rows))


def test_each_part_is_a_row_and_they_add_up_to_the_delay(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    KeptCauses()(settings, DAY)
    rows = sorted(_rows(settings), key=lambda row: row["rank"])
    by_replay = _of_replay(settings)
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert sum(row["share_ms"] for row in rows) == by_replay.attribution.delay_ms
    assert {row["delay_by_replay_ms"] for row in rows} == {by_replay.attribution.delay_ms}
    assert {row["violation_delay_ms"] for row in rows} == {by_replay.delay_ms}
    assert (rows[-1]["cause"], rows[-1]["is_named"]) == ("steady_at_the_limit", True)
    assert {row["slowed"] for row in rows} == {None}
    assert {row["episode_id"] for row in rows} == {"e0"}


def test_files_have_the_statistics_that_readers_skip_by(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    KeptCauses()(settings, DAY)
    properties = DeltaTable(f"{settings.tables}/causes").metadata().configuration
    assert properties["delta.dataSkippingStatsColumns"] == "start_time"


def test_a_second_run_writes_nothing(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    assert KeptCauses()(settings, DAY) == 1
    version = DeltaTable(f"{tmp_path}/causes").version()
    assert KeptCauses()(settings, DAY) == 0
    assert DeltaTable(f"{tmp_path}/causes").version() == version


def test_other_figures_of_the_violation_replace_the_kept_causes(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    KeptCauses()(settings, DAY)
    before = _rows(settings)
    _changed(settings, throttled_requests=43)
    usage, aside = tmp_path / "usage", tmp_path / "aside"
    usage.rename(aside)
    with pytest.raises(
        UserError, match="table usage is missing"
    ):  # those that are kept do not count any more
        reasons(settings, [WANTED])
    aside.rename(usage)
    assert KeptCauses()(settings, DAY) == 1
    after = _rows(settings)
    assert len(after) == len(before)
    assert {row["inputs"] for row in after}.isdisjoint(row["inputs"] for row in before)
    assert WANTED in reasons(_without_usage(settings), [WANTED]).found


def test_two_processes_at_the_same_time_keep_each_cause_once(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    begin = threading.Barrier(2)

    def keep() -> None:
        begin.wait()
        KeptCauses()(settings, DAY)

    both = [threading.Thread(target=keep) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    ranks = sorted(row["rank"] for row in _rows(settings))
    assert ranks == list(range(1, len(ranks) + 1))


@pytest.mark.parametrize(
    ("figures", "day"),
    [
        ({"end_time": None}, DAY),
        ({"observed_throttled_ms": 999, "throttled_ms": 999}, DAY),
        ({"quota_type": "controller_mutation"}, DAY),
        ({"source": "jmx"}, DAY),
        ({"cluster_id": "other"}, DAY),
        ({}, date(2026, 11, 20)),
    ],
    ids=["open", "short", "mutations", "from JMX", "of another cluster", "on another day"],
)
def test_other_violations_are_not_kept(
    figures: dict[str, Any], day: date, recorded: Path, tmp_path: Path
) -> None:
    settings = _copied(recorded, tmp_path)
    _changed(settings, **figures)
    assert KeptCauses()(settings, day) == 0
    assert not (tmp_path / "causes").exists()


def test_a_violation_belongs_to_the_day_in_which_its_last_burst_is_known(
    recorded: Path, tmp_path: Path
) -> None:
    """A burst at 23:59:01 is known at 00:00:01."""
    settings = _copied(recorded, tmp_path)
    _changed(settings, end_time=datetime(2026, 11, 21, 23, 59, 1, tzinfo=UTC))
    assert KeptCauses()(settings, DAY) == 0
    assert KeptCauses()(settings, date(2026, 11, 22)) == 1


def test_names_of_clients_are_kept_as_they_are(tmp_path: Path) -> None:
    hostile = "'); drop table x; -- \"\x1b[31m\u202e\n{}<script>"
    recording = CAUSES[Cause.SHARED_BUCKET](Chance(4))
    first = recording.records[0].client[0]
    records = [
        each if each.client[0] != first else replace(each, client=(hostile, each.client[1]))
        for each in recording.records
    ]
    write_recording(tmp_path, recording._replace(records=records), Entity(client_id="app"))
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    by_replay = _of_replay(settings)
    KeptCauses()(settings, DAY)
    [kept] = reasons(settings, [WANTED]).found.values()
    assert kept.attribution == by_replay.attribution
    assert [row["slowed"] is None for row in sorted(_rows(settings), key=lambda row: row["rank"])] == [
        True,
        False,
    ]
    assert kept.sharing is not None
    assert hostile in {each.client[0] for each in kept.sharing.clients}


def test_the_list_of_violations_has_kept_causes_when_the_requests_are_gone_and_writes_none(
    recorded: Path, tmp_path: Path
) -> None:
    settings = _copied(recorded, tmp_path)
    command = ("violations", "--why", "--tables", settings.tables)
    [by_replay] = as_json(*command)["rows"]
    assert not (tmp_path / "causes").exists()
    KeptCauses()(settings, DAY)
    _without_usage(settings)
    [kept] = as_json(*command)["rows"]
    assert kept["why"] == by_replay["why"]
    assert kept["causes"] == by_replay["causes"]
    [row, *_] = as_json("why", "--client-id", "app", "--tables", settings.tables)["rows"]
    assert row["cause"] == kept["causes"][0]["cause"]


def test_a_cause_of_a_newer_release_is_replayed_instead(recorded: Path, tmp_path: Path) -> None:
    settings = _copied(recorded, tmp_path)
    KeptCauses()(settings, DAY)
    rows = _rows(settings)
    shutil.rmtree(tmp_path / "causes")
    write_table(tmp_path, "causes", *({**row, "cause": "moon"} for row in rows))
    assert reasons(settings, [WANTED]).found[WANTED] == _of_replay(settings)


def test_maintain_keeps_the_causes_of_a_closed_date_and_a_dry_run_keeps_none(
    recorded: Path, tmp_path: Path
) -> None:
    settings = _copied(recorded, tmp_path / "tables")
    tomorrow = {"event_date": date(2026, 11, 22)}
    write_table(tmp_path / "tables", "requests", request(0), request(1, T0_MS + 86_400_000, **tomorrow))
    write_table(tmp_path / "tables", "usage", usage(86_400, **tomorrow))
    write_table(tmp_path / "tables", "decisions", decision(86_400, **tomorrow))
    config = tmp_path / "kquota.yaml"
    paths = f"cluster_id: demo\ntables: {settings.tables}\ncheckpoints: {tmp_path}/checkpoints\n"
    # Nothing is deleted, whatever the clock of this machine shows.
    config.write_text(f"{paths}maintain: {{retention: {{}}}}\n", encoding="utf-8")
    as_json("maintain", "--dry-run", "--config", str(config))
    assert not (tmp_path / "tables" / "causes").exists()
    as_json("maintain", "--config", str(config))
    assert {row["episode_id"] for row in _rows(settings)} == {"e0"}
