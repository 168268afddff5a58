"""Kept dates of demand: the same right sizes as from the rows, only as long as the rows are the same."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.audit.past.maintain import Step
from kquota_spark.config.settings import Settings
from kquota_spark.model.rightsize.demand import bin_of
from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.right_sizes import period_sizes
from kquota_spark.reports.right_sizes.demand_roll_up import DemandRollUp
from kquota_spark.reports.scope.period import Period
from kquota_spark.rightsize import kept_days
from kquota_spark.rightsize.buckets import BucketKey
from kquota_spark.rightsize.kept_days import open_history
from kquota_spark.rightsize.recommended import Recommendation, recommendations
from kquota_spark.rightsize.rows import SizeRow
from kquota_spark.rightsize.windows import Asked, BucketWindows, bucket_windows
from kquota_spark.schema.tables import USAGE
from kquota_spark.store.packing import pack, small_files
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table
from tests.right_size.tables import FIRST, write_weeks
from tests.support.chance import Chance
from tests.support.programs.command_output import as_json
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

DAY_MS, DAYS = 86_400_000, 16
BEGIN_MS = int(FIRST.timestamp() * 1_000)
END_MS = BEGIN_MS + DAYS * DAY_MS
MIDNIGHT_S = 66_000
"""Seconds from T0 to 2026-11-22 00:00 UTC."""
MIDNIGHT_MS = T0_MS + MIDNIGHT_S * 1_000


@pytest.fixture(scope="module")
def kept_weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen days of five clients, of which all but the newest are kept."""
    root = write_weeks(tmp_path_factory.mktemp("weeks"), DAYS).parent / "tables"
    assert len(roll_up(weeks(root), FIRST.date(), DAYS - 1)) == DAYS - 1
    return root


def weeks(root: Path) -> Settings:
    return Settings(cluster_id="weeks", tables=str(root))


def roll_up(settings: Settings, first: date, days: int) -> list[Step]:
    """What one run of maintenance does for so many closed dates."""
    of_run = DemandRollUp()
    steps = (of_run(settings, first + timedelta(days=number)) for number in range(days))
    return [step for step in steps if step is not None]


def sizes(root: Path, *buckets: BucketKey) -> list[Recommendation]:
    with Tables(weeks(root)) as tables:
        return recommendations(tables, "weeks", END_MS, buckets=buckets or None)


def rows_read(settings: Settings, asked: Asked) -> int:
    """The rows of `decisions` that a history reads."""
    with Tables(settings) as tables:
        open_history(tables, asked)
        return int(tables.query("select count(*) from decisions").rows[0][0])


def without_kept(root: Path, place: Path) -> Path:
    """A copy of the tables without the kept dates."""
    shutil.copytree(root, place)
    shutil.rmtree(place / "demand_days")
    return place


def test_kept_dates_give_the_sizes_of_the_rows(kept_weeks: Path, tmp_path: Path) -> None:
    of_rows = without_kept(kept_weeks, tmp_path / "rows")
    found = sizes(kept_weeks)
    assert [one.place.user for one in found] == ["alice", "bob", "carol", "dave", "erin"]
    assert found == sizes(of_rows)
    bob = BucketKey("produce", "bob", "")
    assert sizes(kept_weeks, bob) == sizes(of_rows, bob) == [found[1]]
    # In an hour alice and dave have 36 rows, erin too, bob 150; carol has 36 in the last three days. One day is read.
    asked = Asked("weeks", BEGIN_MS, END_MS)
    assert rows_read(weeks(kept_weeks), asked) == 24 * (4 * 36 + 150)
    assert rows_read(weeks(of_rows), asked) == 24 * ((3 * 36 + 150) * DAYS + 36 * 3)


def test_a_daily_report_has_kept_dates_whose_usage_is_deleted(
    kept_weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reading takes as long as it takes: a busy machine must not leave sizes out.
    monkeypatch.setattr(period_sizes, "LEAST_S", 600.0)
    monkeypatch.setattr(period_sizes, "MOST_S", 600.0)
    place = tmp_path / "tables"
    shutil.copytree(kept_weeks, place)
    period = Period(END_MS - 2 * DAY_MS, END_MS - DAY_MS)

    def of_report() -> Sequence[SizeRow]:
        return gather_report(weeks(place), period, made_at_ms=END_MS).right_sizes

    before = of_report()
    assert [row.bucket_user for row in before] == ["bob", "erin", "dave", "alice"]
    delta_table(weeks(place), "usage").delete("event_date < '2026-11-15'")
    assert of_report() == before
    shutil.rmtree(place / "demand_days")
    assert of_report() != before


def test_a_history_that_ends_within_a_date_is_that_of_the_rows(kept_weeks: Path) -> None:
    noon_ms = END_MS - DAY_MS // 2
    asked = Asked("weeks", noon_ms - 15 * DAY_MS, noon_ms)
    with Tables(weeks(kept_weeks)) as tables:
        assert not open_history(tables, asked)


def test_the_command_ends_with_the_last_kept_date_and_has_the_limits_of_now(
    kept_weeks: Path, tmp_path: Path
) -> None:
    place = tmp_path / "tables"
    shutil.copytree(kept_weeks, place)
    config = tmp_path / "kquota.yaml"
    config.write_text(
        f"cluster_id: weeks\ntables: {place}\nenforcement: {{policy_file: {tmp_path}/none.yaml}}\n"
    )
    # At 01:00 alice has a quota of its own, and that of dave is gone.
    now = {"cluster_id": "weeks", "event_date": date(2026, 11, 17)}
    at_s = (END_MS - T0_MS) // 1_000 + 3_600
    of_dave = {"bucket_user": "dave", "users": ["dave"], "limit_per_s": None, "rule": None}
    write_table(
        place, "decisions", decision(at_s, limit_per_s=150_000.0, **now), decision(at_s, **now, **of_dave)
    )
    limits = {"alice": 150_000, "bob": 200_000, "carol": 1_000_000, "dave": None, "erin": 100_000}
    for options, expected in (
        ((), limits),
        (("--until", "2026-11-17T00:00:00Z"), {"alice": 200_000, "dave": 400_000}),
    ):
        answer = as_json("rightsize", "--config", str(config), *options)
        assert answer["to"] == "2026-11-17T00:00:00Z"
        rows = {row["bucket_user"]: row for row in answer["rows"]}
        assert {user: row["limit_per_s"] for user, row in rows.items()} == limits | expected
        targets = {one.place.user: one.size and one.size.target for one in sizes(kept_weeks)}
        assert {user: row["target_per_s"] for user, row in rows.items()} == targets
    # A period of one's own is read as it is.
    since = as_json("rightsize", "--config", str(config), "--since", "2026-11-02T00:00:00Z")
    assert since["to"] == "2026-11-17T01:00:00Z"


def test_dates_that_hold_are_not_counted_again(kept_weeks: Path) -> None:
    version = delta_table(weeks(kept_weeks), "demand_days").version()
    assert roll_up(weeks(kept_weeks), FIRST.date(), DAYS - 1) == []
    assert delta_table(weeks(kept_weeks), "demand_days").version() == version


def test_rows_of_another_form_are_not_used(kept_weeks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_days, "FORM", kept_days.FORM + 1)
    with Tables(weeks(kept_weeks)) as tables:
        assert not open_history(tables, Asked("weeks", BEGIN_MS, END_MS))


def of_demo(root: Path) -> Settings:
    return Settings(cluster_id="demo", tables=str(root))


def counted(root: Path, *, is_of_rows: bool = False, days: int = 3) -> list[BucketWindows]:
    """The windows of the days up to the end of 2026-11-23."""
    to_ms = MIDNIGHT_MS + 2 * DAY_MS
    asked = Asked("demo", to_ms - days * DAY_MS, to_ms)
    with Tables(of_demo(root)) as tables:
        if is_of_rows:
            for name in ("decisions", "usage"):
                tables.open(name)
            return list(bucket_windows(tables, asked))
        return list(bucket_windows(tables, asked, has_kept=open_history(tables, asked)))


def held(root: Path) -> list[str]:
    """The dates of 2026-11-21 to 23 that are not read from the tables."""
    days = ["2026-11-21", "2026-11-22", "2026-11-23"]
    with Tables(of_demo(root)) as tables:
        files = kept_days.files_of(tables)
        assert files is not None
        return sorted(kept_days.held_days(tables, "demo", files, days))


def two_dates(root: Path) -> Settings:
    """A second of alice on the 21st and on the 22nd, both kept."""
    for offset_s in (0, MIDNIGHT_S):
        write_table(root, "usage", usage(offset_s))
        write_table(root, "decisions", decision(offset_s))
    steps = roll_up(of_demo(root), date(2026, 11, 21), 2)
    assert [(step.action, step.date, step.note) for step in steps] == [
        ("add date", "2026-11-21", "1 bucket of a broker"),
        ("add date", "2026-11-22", "1 bucket of a broker"),
    ]
    return of_demo(root)


def test_late_rows_put_a_date_out_of_use_until_it_is_counted_again(tmp_path: Path) -> None:
    settings = two_dates(tmp_path)
    write_table(tmp_path, "decisions", decision(30, amount=90_000))
    assert held(tmp_path) == ["2026-11-22"]
    [one] = counted(tmp_path)
    # The windows of the 21st have age 2: the late one too.
    assert [(each.age, each.windows) for each in one.windows] == [(1, 1), (2, 1), (2, 1)]
    assert [step.date for step in roll_up(settings, date(2026, 11, 21), 2)] == ["2026-11-21"]
    assert held(tmp_path) == ["2026-11-21", "2026-11-22"]
    assert counted(tmp_path) == [one]


def test_packing_keeps_a_date_in_use(tmp_path: Path) -> None:
    settings = two_dates(tmp_path)
    write_table(tmp_path, "usage", usage(1))
    roll_up(settings, date(2026, 11, 21), 2)
    files = [file for file in small_files(delta_table(settings, "usage")) if file.event_date == "2026-11-21"]
    assert len(files) == 2 and pack(settings, USAGE, files)
    assert held(tmp_path) == ["2026-11-21", "2026-11-22"]


def test_a_date_whose_rows_are_deleted_for_their_age_still_counts(tmp_path: Path) -> None:
    settings = two_dates(tmp_path)
    before = counted(tmp_path)
    for name in ("decisions", "usage"):
        delta_table(settings, name).delete("event_date < '2026-11-22'")
    assert held(tmp_path) == ["2026-11-21", "2026-11-22"]
    assert counted(tmp_path) == before
    assert roll_up(settings, date(2026, 11, 21), 2) == []


def test_a_bucket_without_traffic_has_its_first_second_and_its_newest_limit(tmp_path: Path) -> None:
    rows = (
        decision(5, amount=0, limit_per_s=2.0, rule="users/<default>"),
        decision(MIDNIGHT_S + 7, limit_per_s=3.0),
    )
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", usage(5), usage(MIDNIGHT_S + 7))
    roll_up(of_demo(tmp_path), date(2026, 11, 21), 2)
    [one] = counted(tmp_path)
    assert held(tmp_path) == ["2026-11-21", "2026-11-22"]
    assert (one.first_ms, one.limit_per_s, one.rule) == (T0_MS + 5_000, 3.0, "users/alice")
    assert [each.age for each in one.windows] == [1]


def test_a_throttle_over_midnight_counts_on_the_date_of_its_begin(tmp_path: Path) -> None:
    """From 23:59:54 for 20 s: the windows after midnight are free, and none of them is a first one."""
    row = {
        "observed_throttled_requests": 1,
        "observed_throttle_ms": 20_000,
        "observed_total_throttle_ms": 20_000,
    }
    write_table(
        tmp_path, "decisions", decision(MIDNIGHT_S - 6, amount=20_000, **row), decision(MIDNIGHT_S + 4)
    )
    write_table(tmp_path, "usage", usage(MIDNIGHT_S - 6))
    [one] = counted(tmp_path, is_of_rows=True)
    # 2,000 bytes per second without a known pace on the 21st; 100 on the 22nd.
    assert [(each.age, each.windows, each.interval.high is None) for each in one.windows] == [
        (1, 1, False), (2, 1, True)
    ]  # fmt: skip


def test_a_client_with_a_bucket_of_its_own_on_one_date_counts_on_the_others(tmp_path: Path) -> None:
    """etl and own send 20,000 bytes each in 5 s, and wait for 5 s; on the 22nd own has a bucket of its own."""
    row = {
        "observed_throttled_requests": 1,
        "observed_throttle_ms": 5_000,
        "observed_total_throttle_ms": 5_000,
    }
    begins = (2, MIDNIGHT_S + 12)
    both, alone = ({"client_ids": names, **row} for names in (["etl", "own"], ["etl"]))
    write_table(
        tmp_path,
        "decisions",
        decision(begins[0], amount=40_000, **both),
        decision(begins[1], amount=20_000, **alone),
    )
    sent = [decision(begin_s, amount=20_000, bucket_user="alice", **row) for begin_s in begins]
    for connection, client_id in enumerate(("etl", "own")):
        write_table(
            tmp_path, "usage", *(usage_of(one, connection) | {"client_id": client_id} for one in sent)
        )
    [one] = counted(tmp_path, is_of_rows=True)
    # Each connection is muted for 5 s of the window, so its pace is 4,000 bytes per second.
    wanted = {2: 8_000, 1: 4_000}
    assert {each.age: each.interval.high for each in one.windows} == {
        age: bin_of(rate) for age, rate in wanted.items()
    }
    roll_up(of_demo(tmp_path), date(2026, 11, 21), 2)
    assert counted(tmp_path) == [one]


@pytest.mark.parametrize("seed", range(4))
def test_drawn_dates_are_kept_as_they_are_counted(seed: int, tmp_path: Path) -> None:
    chance = Chance(seed)
    rows = drawn(chance)
    write_table(tmp_path, "decisions", *rows)
    write_table(tmp_path, "usage", *(usage_of(row, chance.randint(1, 2)) for row in rows))
    expected = counted(tmp_path, is_of_rows=True)
    assert len(expected) > 2
    assert len(roll_up(of_demo(tmp_path), date(2026, 11, 21), 2)) == 2
    assert held(tmp_path) == ["2026-11-21", "2026-11-22"]
    assert counted(tmp_path) == expected


def drawn(chance: Chance) -> list[dict[str, Any]]:
    """Seconds of three buckets on two brokers, some of them throttled, more of them beside the two midnights."""
    rows = []
    for _ in range(150):
        near = chance.choice((0, MIDNIGHT_S, MIDNIGHT_S + DAY_MS // 1_000))
        user, throttle_ms = chance.choice(("alice", "bob", "carol")), chance.choice((0, 0, 4_000, 25_000))
        rows.append(
            decision(
                near + chance.randint(-60, 60) if near else chance.randint(0, 100), broker_id=chance.randint(1, 2),
                bucket_user=user, users=[user], rule=f"users/{user}", amount=chance.randint(0, 50_000),
                limit_per_s=chance.choice((None, 1_000.0, 5_000.0)), observed_throttle_ms=throttle_ms,
                observed_throttled_requests=int(throttle_ms > 0), observed_total_throttle_ms=throttle_ms,
            )
        )  # fmt: skip
    return rows


def usage_of(row: dict[str, Any], connection: int) -> dict[str, Any]:
    """The usage of one decision, sent on a connection."""
    at_ms = round(row["second"].astimezone(UTC).timestamp() * 1_000)
    point = {"record_time_ms": at_ms, "log_time_ms": at_ms, "connection_hash": connection,
             "correlation_id": 0, "amount": row["amount"], "observed_throttle_ms": row["observed_throttle_ms"],
             "kind": 0, "network_time_us": 0}  # fmt: skip
    return usage(
        round((at_ms - T0_MS) / 1_000), broker_id=row["broker_id"], user=row["bucket_user"], amount=row["amount"],
        points=[point],
    )  # fmt: skip


def test_cluster_and_dates_of_others_are_left_out(tmp_path: Path) -> None:
    two_dates(tmp_path)
    with Tables(Settings(cluster_id="other", tables=str(tmp_path))) as tables:
        begin = datetime(2026, 11, 21, tzinfo=UTC)
        from_ms = round(begin.timestamp() * 1_000)
        assert not open_history(tables, Asked("other", from_ms, from_ms + 2 * DAY_MS))
