"""Seconds above the limit become episodes, open ones included, whatever comes in one micro-batch."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kquota_spark.audit.violations import fold as folding
from kquota_spark.audit.violations.episodes import pieces_of
from kquota_spark.audit.violations.fold import EpisodeFold
from kquota_spark.audit.violations.judged import judged_rows
from kquota_spark.audit.violations.rebuild import rebuild_all_violations, rebuild_violations
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Kafka, Settings
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.schema.tables import DECISIONS, VIOLATIONS
from kquota_spark.store.commits import MicroBatch
from kquota_spark.store.reading import Tables
from tests.support.chance import Chance
from tests.support.spark.queries import only, rows_of, settings_at
from tests.support.tables.table_rows import DAY, T0_MS, decision, second, write_table

GAP_S = 3


def over(offset_s: int, percent: float = 150.0, **changed: Any) -> dict[str, Any]:
    """A second above the limit of 1 MB/s."""
    row = decision(
        offset_s,
        rate_per_s=percent * 10_000,
        quota_used_percent=percent,
        throttled_requests=2,
        total_throttle_ms=70,
    )
    return {**row, **changed}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_over(tmp_path)


def settings_over(root: Path) -> Settings:
    made = settings_at(root, episode_gap=GAP_S * 1_000)
    write_table(Path(made.tables), "violations")
    return made


def episodes(settings: Settings, *batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write and fold each list as one micro-batch; all episodes so far."""
    for rows in batches:
        write_table(Path(settings.tables), "decisions", *rows)
        newest = DeltaTable(f"{settings.tables}/violations").transaction_version("query")
        fold(settings, 0 if newest is None else newest + 1, *rows)
    return rows_of(settings, "violations")


def in_columns(*rows: dict[str, Any]) -> pa.Table:
    data = [{name: row.get(name) for name in DECISIONS.names} for row in rows]
    return pa.Table.from_pylist(data, schema=DECISIONS.arrow_schema())


def fold(settings: Settings, number: int, *rows: dict[str, Any]) -> None:
    judged = judged_rows(in_columns(*rows), settings.stream.episode_gap)
    EpisodeFold(settings).fold(judged, MicroBatch("query", number), T0_MS)


def spans(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, int]]:
    """Start, end and last second of each episode, in seconds after T0."""
    found = []
    for row in rows:
        end_ms = row["end_time"]
        end_s = None if end_ms is None else (end_ms - T0_MS) // 1_000
        found.append(((row["start_time"] - T0_MS) // 1_000, end_s, (row["last_second"] - T0_MS) // 1_000))
    return sorted(found, key=repr)


def test_an_episode_is_seen_at_once_and_closed_when_its_gap_has_passed(settings: Settings) -> None:
    [row] = episodes(
        settings,
        [
            over(0, 120.0, users=["bob", "al"], client_ids=["x"], limit_per_s=900_000.0, level=2, rule="r"),
            over(1, 180.0, users=["al"], client_ids=["y"]),
        ],
    )
    first = {
        "cluster_id": "demo",
        "event_date": DAY,
        "episode_id": row["episode_id"],
        "broker_id": 1,
        "quota_type": "produce",
        "bucket_user": "alice",
        "bucket_client_id": "",
        "bucket_tags": None,
        "start_time": T0_MS,
        "end_time": None,
        "last_second": T0_MS + 1_000,
        "level": 2,
        "rule": "r",
        "limit_per_s": 900_000.0,
        "peak_rate_per_s": 1_800_000.0,
        "peak_quota_used_percent": 180.0,
        "violated_seconds": 2,
        "throttled_ms": 140,
        "throttled_requests": 4,
        "source": "log",
        "users": ["al", "bob"],
        "client_ids": ["x", "y"],
        "longest_throttle_ms": 0,
        "observed_throttled_ms": None,
        "observed_throttled_requests": 0,
        "observed_longest_throttle_ms": 0,
        "muted_until": T0_MS + 2_000,
    }
    assert row == first
    assert list(row) == VIOLATIONS.names
    # 3 s without a violation do not end it (1 to 4), and here it goes on.
    [row] = episodes(settings, [decision(3), over(4, 110.0, limit_per_s=800_000.0)])
    assert row == {
        **first,
        "last_second": T0_MS + 4_000,
        "muted_until": T0_MS + 5_000,
        "limit_per_s": 800_000.0,
        "violated_seconds": 3,
        "throttled_ms": 210,
        "throttled_requests": 6,
        "users": ["al", "alice", "bob"],
        "client_ids": ["etl", "x", "y"],
    }
    # Another bucket of this broker shows that its time has moved on; another broker's would not.
    assert episodes(settings, [decision(7, bucket_user="bob"), decision(60, broker_id=2)]) == [row]
    [closed] = episodes(settings, [decision(8, bucket_user="bob")])
    assert closed == {**row, "end_time": T0_MS + 5_000}


def test_exactly_at_the_limit_is_no_violation(settings: Settings) -> None:
    unlimited = decision(1, limit_per_s=None, quota_used_percent=None, rate_per_s=9e9, level=None, rule=None)
    found = episodes(settings, [over(0, 100.0), unlimited, over(2, 100.00000000000001)])
    assert spans(found) == [(2, None, 2)]


def test_gaps_and_buckets_make_episodes(settings: Settings) -> None:
    mine = [over(second) for second in (0, 1, 4, 8, 9)]  # 4 - 1 is within the gap, 8 - 4 is not
    others: list[dict[str, Any]] = [
        {"cluster_id": "other"},
        {"broker_id": 2},
        {"quota_type": "fetch"},
        {"bucket_user": "bob"},
        {"bucket_client_id": "etl"},
    ]
    found = episodes(settings, [*mine, *(over(2, **other) for other in others)])
    keys = ("cluster_id", "broker_id", "quota_type", "bucket_user", "bucket_client_id")
    alice = [row for row in found if tuple(row[key] for key in keys) == ("demo", 1, "produce", "alice", "")]
    assert spans(alice) == [(0, 5, 4), (8, None, 9)]
    assert [row["violated_seconds"] for row in sorted(alice, key=lambda row: row["start_time"])] == [3, 2]
    assert len(found) == 7
    assert len({row["episode_id"] for row in found}) == 7


def test_at_most_20_names_whatever_comes_first(settings: Settings) -> None:
    names = [f"u{index:02}" for index in range(36)]
    late_names_first = ([over(0, users=names[18:])], [over(1, users=names[:18])])
    assert only(episodes(settings, *late_names_first), "users") == [(names[:20],)]


def test_the_cut_into_batches_changes_nothing(tmp_path: Path, chance: Chance) -> None:
    seconds = []
    for offset_s in range(60):
        places: list[dict[str, Any]] = [
            {"broker_id": 1},
            {"broker_id": 1, "bucket_user": "bob", "users": ["bob"]},
            {"broker_id": 2},
        ]
        here = [place for place in places if chance.random() < 0.8]
        percents = [chance.choice([50.0, 100.0, 100.5, 240.0]) for _ in here]
        seconds.append([over(offset_s, p, **place) for p, place in zip(percents, here, strict=True)])
    cuts = sorted(chance.sample(range(1, 60), 3))
    print(f"cut at {cuts}")
    parts = [seconds[start:end] for start, end in zip([0, *cuts], [*cuts, 60], strict=True)]
    commits = [[row for second in part for row in second] for part in parts]
    whole = episodes(settings_over(tmp_path / "1"), [row for rows in commits for row in rows])
    assert len(whole) > 3
    assert episodes(settings_over(tmp_path / "2"), *commits) == whole


def test_a_batch_that_comes_again_adds_nothing(settings: Settings) -> None:
    found = episodes(settings, [over(0)], [over(1)])
    table = DeltaTable(f"{settings.tables}/violations")
    version = table.version()
    assert table.transaction_version("query") == 1
    fold(settings, 1, over(1))
    assert rows_of(settings, "violations") == found
    assert only(found, "violated_seconds", "throttled_ms") == [(2, 140)]
    assert DeltaTable(f"{settings.tables}/violations").version() == version
    # And the batch after it is not taken for a copy.
    assert only(episodes(settings, [over(2)]), "violated_seconds", "throttled_ms") == [(3, 210)]


def test_a_driver_that_wakes_up_undoes_no_episode_of_its_successor(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes(settings, [over(0)])
    monkeypatch.setattr(folding, "_writing", contextlib.nullcontext())  # the other process has its own
    successors = [(1, 2)]

    def folded_after_the_successor(*args: Any) -> Any:
        for number in successors.pop() if successors else ():
            fold(settings, number, over(number))
        return folded(*args)

    folded = folding._folded
    monkeypatch.setattr(folding, "_folded", folded_after_the_successor)
    fold(settings, 1, over(1))
    assert successors == []
    assert only(rows_of(settings, "violations"), "violated_seconds") == [(3,)]
    assert DeltaTable(f"{settings.tables}/violations").transaction_version("query") == 2


def test_a_batch_that_changes_nothing_writes_nothing(settings: Settings) -> None:
    episodes(settings, [over(0)], [decision(2)])
    # The open episode stays as it is: another second of no violation, within its gap.
    assert DeltaTable(f"{settings.tables}/violations").version() == 1


def test_the_log_makes_the_episodes_of_a_broker_that_has_one(settings: Settings) -> None:
    """Broker 1 has a log for produce, broker 2 has none: each violation is there once."""
    both = replace(
        settings, kafka=Kafka(jmx_topic="jmx"), stream=replace(settings.stream, episode_gap=Duration(10_000))
    )
    of_log = {"rate_per_s": 2_000_000.0, "quota_used_percent": 200.0, "total_throttle_ms": 500}
    from_jmx = {**of_log, "source": "jmx", "total_throttle_ms": None, "throttled_requests": None}
    found = episodes(
        both,
        [
            *(decision(offset, **of_log) for offset in range(4)),
            decision(2, **from_jmx),
            decision(7, **from_jmx),
            decision(2, **from_jmx, broker_id=2),
            decision(7, **from_jmx, broker_id=2),
            # The log tells nothing of this type, so JMX does, on the broker with a log too.
            decision(2, **{**from_jmx, "quota_type": "request"}),
            # The log tells of mutations once in a cluster, JMX by broker.
            decision(2, **of_log, quota_type="controller_mutation", broker_id=-1),
            decision(3, **{**from_jmx, "quota_type": "controller_mutation"}),
            # Ten minutes and a second after the log's last word JMX counts.
            decision(604, **from_jmx),
        ],
    )
    shown = ("broker_id", "quota_type", "start_time", "violated_seconds", "source", "throttled_ms")
    expected = [
        (-1, "controller_mutation", T0_MS + 2_000, 1, "log", 500),
        (1, "produce", T0_MS, 4, "log", 2_000),
        (1, "produce", T0_MS + 604_000, 1, "jmx", None),
        (1, "request", T0_MS + 2_000, 1, "jmx", None),
        (2, "produce", T0_MS + 2_000, 2, "jmx", None),
    ]
    assert only(found, *shown) == expected
    # The clock of JMX, ten minutes ahead, does not end what the log may go on with.
    (produces,) = (row for row in found if row["source"] == "log" and row["quota_type"] == "produce")
    assert produces["end_time"] is None
    # Made anew from all decisions they are the same.
    rebuild_all_violations(both)
    assert rows_of(settings, "violations") == found


def test_beside_a_log_a_violated_second_of_jmx_opens_the_newest_file_of_decisions_only(
    settings: Settings,
) -> None:
    both = replace(settings, kafka=Kafka(jmx_topic="jmx"))
    decisions = Path(settings.tables) / "decisions"
    for offset_s in (0, 400):
        write_table(Path(settings.tables), "decisions", decision(offset_s))
    # The first file ends 601 s before the second of JMX, too old to count. It is gone, so a read of it would fail.
    actions = pa.table(DeltaTable(str(decisions)).get_add_actions(flatten=True))
    (decisions / str(actions.sort_by("max.second")["path"][0])).unlink()
    fold(both, 0, over(601, source="jmx", broker_id=1), over(601, source="jmx", broker_id=2))
    assert only(rows_of(settings, "violations"), "broker_id", "source") == [(2, "jmx")]


def test_beside_a_log_each_micro_batch_of_jmx_opens_what_was_committed_since_the_one_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str | int] = []
    whole, some = Tables.open, Tables.open_files

    def open_whole(self: Tables, name: str, newer_than_ms: int | None = None) -> None:
        opened.append(name)
        whole(self, name, newer_than_ms)

    def open_some(self: Tables, name: str, paths: Collection[str]) -> None:
        opened.append(len(paths))
        some(self, name, paths)

    monkeypatch.setattr(Tables, "open", open_whole)
    monkeypatch.setattr(Tables, "open_files", open_some)
    both = replace(settings, kafka=Kafka(jmx_topic="jmx"))
    root, its = Path(settings.tables), EpisodeFold(both)
    from_jmx: dict[str, Any] = {"source": "jmx", "total_throttle_ms": None, "throttled_requests": None}

    def fold_jmx(number: int, *rows: dict[str, Any]) -> None:
        its.fold(judged_rows(in_columns(*rows), GAP_S * 1_000), MicroBatch("jmx", number), T0_MS)

    write_table(root, "decisions", decision(0))
    fold_jmx(0, over(601, **from_jmx))
    # The log speaks again: the second of JMX that follows does not count, and on broker 2 it does.
    write_table(root, "decisions", decision(700))
    write_table(root, "decisions", decision(701, quota_type="fetch"))
    fold_jmx(1, over(720, **from_jmx), over(720, broker_id=2, **from_jmx))
    fold_jmx(2, over(730, **from_jmx), over(731, broker_id=2, **from_jmx))
    assert opened == ["decisions", 2]
    # One that comes late asks for what was told before all that is known.
    fold_jmx(3, over(500, broker_id=2, **from_jmx))
    assert opened == ["decisions", 2, "decisions"]
    assert only(rows_of(settings, "violations"), "broker_id", "start_time") == [
        (1, T0_MS + 601_000),
        (2, T0_MS + 500_000),
        (2, T0_MS + 720_000),
        (2, T0_MS + 731_000),
    ]


def test_episodes_made_anew_are_those_that_were_folded(settings: Settings) -> None:
    seconds = (0, 1, 4, 8, 9, 86_399, 86_400, 86_402, 200_000)
    rows = [over(second) for second in seconds] + [over(86_401, bucket_user="bob")]
    found = episodes(settings, rows, [decision(200_010)])
    assert len(found) == 5
    damaged = DeltaTable(f"{settings.tables}/violations")
    damaged.delete("bucket_user = 'bob'")
    # An episode that no decision makes goes.
    write_table(Path(settings.tables), "violations", {**found[0], **of_nobody()})
    rebuild_all_violations(settings)
    assert rows_of(settings, "violations") == found


def of_nobody() -> dict[str, Any]:
    return {
        "episode_id": "0" * 32,
        "bucket_user": "nobody",
        "start_time": second(0),
        "last_second": second(1),
        "end_time": second(2),
    }


def test_what_is_not_folded_yet_stays_to_be_folded(settings: Settings) -> None:
    before = episodes(settings, [over(0)])
    # JUDGE has written the next second and was killed before the fold; a restatement comes first.
    write_table(Path(settings.tables), "decisions", over(1))
    rebuild_violations(settings, T0_MS - 1_000, T0_MS + 2_000, {("demo", 1, "log"): T0_MS + 1_000})
    assert rows_of(settings, "violations") == before
    fold(settings, 1, over(1))
    assert only(rows_of(settings, "violations"), "violated_seconds", "throttled_ms") == [(2, 140)]


def test_an_episode_of_the_controller_ends_by_the_clock_of_the_brokers(settings: Settings) -> None:
    controller = {"broker_id": CONTROLLER_ID, "quota_type": "controller_mutation"}
    # Nobody changes a topic afterwards; a broker's log goes on.
    found = episodes(settings, [over(0, 120.0, **controller)], [decision(GAP_S + 1)])
    assert spans(found) == [(0, 1, 0)]


def _told(used_percent: float | None, throttled: int, **changed: Any) -> dict[str, Any]:
    """A second of which the broker's log tells the throttles."""
    row = decision(quota_used_percent=used_percent, observed_throttled_requests=throttled)
    return {**row, "observed_total_throttle_ms": 10 * throttled, **changed}


@pytest.mark.parametrize(
    ("row", "is_violated"),
    [
        (_told(150.0, 1), True),
        (_told(100.0, 0), False),
        # The replay is certain of it, and a throttle of less than half a millisecond is none.
        (_told(100.1, 0), True),
        (_told(150.0, 0, is_certain=False), False),
        # The broker throttled; the replay, which is not certain, saw nothing (the 12 s after a quota was cut).
        (_told(40.0, 1, is_certain=False), True),
        (_told(None, 1, limit_per_s=None), True),
        # Written by an older release, or by JMX.
        (_told(101.0, 0, observed_total_throttle_ms=None, is_certain=False), True),
        (_told(99.0, 1, observed_total_throttle_ms=None), False),
    ],
)
def test_the_brokers_throttle_says_which_seconds_are_violated(row: dict[str, Any], is_violated: bool) -> None:
    data = [{name: row.get(name) for name in DECISIONS.names}]
    found = pieces_of(pa.Table.from_pylist(data, schema=DECISIONS.arrow_schema()), GAP_S * 1_000)
    assert found.num_rows == is_violated
