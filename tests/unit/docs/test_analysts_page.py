"""The page for analysts: its code opens tables of real brokers, and its queries answer what their headings ask."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.owners_file import owners_of
from kquota_spark.formats.request_log.line import Request, RequestLogParser, Unreadable
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.reports.budgets.day_roll_up import BudgetRollUp
from kquota_spark.reports.budgets.grouping import by_owner
from kquota_spark.reports.budgets.owned_budgets import budgets_at, newest_ms
from kquota_spark.reports.why.keeping import KeptCauses
from kquota_spark.store.reading import Tables
from kquota_spark.store.storage import delta_table
from tests.support.logs.captures import ALL
from tests.support.places import DATA, ROOT
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.capture_violations import write_violations
from tests.support.tables.table_rows import DAY

PAGE = (ROOT / "kquota_spark/docs/analysts.md").read_text(encoding="utf-8")
LEVELS = ALL[0]
CLIENT = "etl-1"
BUCKET = ("quota_type", "bucket_user", "bucket_client_id")
Rows = list[dict[str, Any]]

COLUMNS = {
    "1": (*BUCKET, "time_throttled_s", "time_throttled_percent", "throttled_requests", "delay_ms"),
    "2": ("broker_id", *BUCKET, "rule", "p95_percent", "peak_percent"),
    "3": (*BUCKET, "limit_of_a_broker", "brokers", "limit_of_the_cluster", "p95_rate_per_s", "used_percent"),
    "4": ("quota_type", "user", "client_id", "bytes", "share_percent", "requests", "busiest_second_per_s"),
    "5": ("quota_type", "client_id", "users", "bytes", "share_percent"),
    "6": ("changed_at", "entity", "key", "previous_value", "value", "delay_before_ms", "delay_after_ms"),
    "7": ("event_date", "quota_type", "judged", "agreement_percent", "only_we_throttle", "only_it_throttles",
          "uncertain", "certain_seconds_percent"),
    "8": ("hour", "quota_type", "bytes", "requests", "mean_per_s", "busiest_second_per_s", "delay_ms"),
    "9": (*BUCKET, "busiest_broker", "bytes", "max_to_mean"),
    "10": ("software_name", "software_version", "throttled_requests", "connections", "delay_ms",
           "new_connection_within"),
    "11": ("entity", "quota_type", "limit_per_s", "seconds_in_use", "peak_percent"),
    "12": ("broker_id", "bucket_client_id", "user", "bytes"),
    "13": ("bucket_user", "bucket_client_id", "quota_type", "cause", "violations", "delay_ms", "mean_confidence"),
    "in force": ("entity", "producer_byte_rate", "consumer_byte_rate", "valid_from"),
}  # fmt: skip


def queries() -> dict[str, str]:
    """By number of the question; the last block of the page is about the quotas in force."""
    found = {}
    for section in PAGE.split("\n### ")[1:]:
        first, *more = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
        found[section.partition(".")[0]] = first
        found.update(zip(["in force"], more, strict=False))
    return found


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The connection that the page's own code makes, on two brokers with all levels of quotas; and the settings."""
    root = tmp_path_factory.mktemp("page")
    settings = write_capture(root / ".kquota/demo/tables", LEVELS)
    write_violations(settings)
    assert KeptCauses()(settings, DAY)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(printed):
        for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(code, "analysts.md", "exec"), names)
    assert "clients/<default>" in printed.getvalue() and "alice" in printed.getvalue()
    names["db"].execute(f"SET VARIABLE client = '{CLIENT}'")
    return names["db"], settings


def asked(opened: tuple[Any, Any], number: str) -> Rows:
    found = opened[0].execute(queries()[number])
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def decisions(opened: tuple[Any, Any]) -> Rows:
    rows: Rows = delta_table(opened[1], "decisions").rows().to_pylist()
    return rows


@pytest.fixture(scope="module")
def log() -> list[tuple[int, Request]]:
    """Each request that a bandwidth quota counts, with its broker, from the log itself."""
    return [*_requests()]


def _requests() -> Iterator[tuple[int, Request]]:
    for path in sorted((DATA / LEVELS.name).glob("broker-*.gz")):
        broker_id = int(re.findall(r"broker-(\d+)", path.name)[0])
        parser = RequestLogParser()
        for line in gzip.decompress(path.read_bytes()).splitlines():
            with contextlib.suppress(Unreadable):
                request = parser.parse(line)
                if request.quota_type in BANDWIDTH:
                    yield broker_id, request


def test_there_are_thirteen_questions_and_each_has_a_query() -> None:
    assert [*queries()] == [str(number) for number in range(1, 14)] + ["in force"]
    assert {*COLUMNS} == {*queries()}


@pytest.mark.parametrize("number", COLUMNS)
def test_a_query_answers_with_the_columns_that_it_names(opened: tuple[Any, Any], number: str) -> None:
    rows = asked(opened, number)
    assert rows and tuple(rows[0]) == COLUMNS[number]


def test_time_throttled_is_that_of_the_seconds_in_which_a_throttle_ran(
    opened: tuple[Any, Any], decisions: Rows
) -> None:
    seconds: dict[Any, set[datetime]] = defaultdict(set)
    all_seconds = [row["second"] for row in decisions]
    for row in decisions:
        for later_s in range(-(-row["observed_throttle_ms"] // 1_000)):
            if (second := row["second"] + timedelta(seconds=later_s)) <= max(all_seconds):
                seconds[tuple(row[name] for name in BUCKET)].add(second)
    span_s = (max(all_seconds) - min(all_seconds)).total_seconds() + 1
    found = {tuple(row[name] for name in BUCKET): row for row in asked(opened, "1")}
    assert {bucket: row["time_throttled_s"] for bucket, row in found.items()} == {
        bucket: len(times) for bucket, times in seconds.items()
    }
    for bucket, times in seconds.items():
        assert found[bucket]["time_throttled_percent"] == pytest.approx(100 * len(times) / span_s, abs=0.051)


def test_top_talkers_are_those_of_the_log(opened: tuple[Any, Any], log: list[tuple[int, Request]]) -> None:
    sent: dict[tuple[str, str, str], int] = defaultdict(int)
    of_type: dict[str, int] = defaultdict(int)
    for _, request in log:
        assert request.quota_type is not None and request.charged_bytes is not None
        sent[request.quota_type.value, request.user, request.client_id] += request.charged_bytes
        of_type[request.quota_type.value] += request.charged_bytes
    rows = asked(opened, "4")
    largest = sorted(sent.values(), reverse=True)[: len(rows)]
    assert [row["bytes"] for row in rows] == largest
    for row in rows:
        assert row["bytes"] == sent[row["quota_type"], row["user"], row["client_id"]]
        assert row["share_percent"] == pytest.approx(
            100 * row["bytes"] / of_type[row["quota_type"]], abs=0.0051
        )


def test_the_day_of_a_client_is_that_of_the_log(
    opened: tuple[Any, Any], log: list[tuple[int, Request]]
) -> None:
    hours: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for _, request in log:
        if request.client_id == CLIENT and request.quota_type is not None:
            sums = hours[request.record_time_ms // 3_600_000, request.quota_type.value]
            for place, value in enumerate((request.charged_bytes or 0, 1, request.observed_throttle_ms)):
                sums[place] += value
    found = {
        (int(row["hour"].timestamp()) // 3_600, row["quota_type"]): [
            row["bytes"], row["requests"], row["delay_ms"]
        ]
        for row in asked(opened, "8")
    }  # fmt: skip
    assert found == dict(hours) and len(found) == 2


def test_agreement_by_day_adds_up(opened: tuple[Any, Any], decisions: Rows) -> None:
    for row in asked(opened, "7"):
        mine = [each for each in decisions if each["quota_type"] == row["quota_type"]]
        judged = sum(each["requests_judged"] for each in mine)
        agreeing = sum(each["requests_agreeing"] for each in mine)
        assert row["judged"] == judged
        assert row["agreement_percent"] == pytest.approx(100 * agreeing / judged, abs=0.00051)
        assert judged == agreeing + row["only_we_throttle"] + row["only_it_throttles"]


def test_skew_is_the_busiest_broker_by_the_mean_of_both(opened: tuple[Any, Any], decisions: Rows) -> None:
    brokers: dict[Any, dict[int, int]] = defaultdict(lambda: {1: 0, 2: 0})
    for row in decisions:
        if row["limit_per_s"] is not None and row["quota_type"] in ("produce", "fetch"):
            brokers[tuple(row[name] for name in BUCKET)][row["broker_id"]] += row["amount"]
    rows = asked(opened, "9")
    assert len(rows) > 5
    for row in rows:
        amounts = brokers[tuple(row[name] for name in BUCKET)]
        assert amounts[row["busiest_broker"]] == max(amounts.values())
        assert row["max_to_mean"] == pytest.approx(
            2 * max(amounts.values()) / sum(amounts.values()), abs=0.0051
        )


def test_the_hours_around_an_edit_hold_what_its_rule_throttled(
    opened: tuple[Any, Any], decisions: Rows
) -> None:
    # The whole capture lies within two hours, so before and after are all that the rule ever throttled.
    edited = [row for row in asked(opened, "6") if row["changed_at"].year > 1970 and row["previous_value"]]
    types = {"producer_byte_rate": "produce", "consumer_byte_rate": "fetch"}
    assert edited
    for row in edited:
        mine = [each for each in decisions
                if each["rule"] == row["entity"] and each["quota_type"] == types[row["key"]]]  # fmt: skip
        before = sum(
            each["observed_total_throttle_ms"] for each in mine if each["second"] < row["changed_at"]
        )
        assert row["delay_before_ms"] == before
        assert row["delay_before_ms"] + row["delay_after_ms"] == sum(
            each["observed_total_throttle_ms"] for each in mine
        )


def test_the_effective_limit_counts_the_brokers_that_were_used(opened: tuple[Any, Any]) -> None:
    rows = asked(opened, "3")
    assert {row["brokers"] for row in rows} == {1, 2}
    assert all(row["limit_of_the_cluster"] == row["limit_of_a_broker"] * row["brokers"] for row in rows)


def test_the_budget_of_a_month_is_that_of_its_dates(opened: tuple[Any, Any], tmp_path: Path) -> None:
    db, settings = opened
    (tmp_path / "owners.yaml").write_text("owners: [{name: payments, users: [alice]}]\n", encoding="utf-8")
    owned = settings.changed(owners=str(tmp_path / "owners.yaml"))
    (day,) = {
        row["event_date"] for row in delta_table(settings, "decisions").rows(["event_date"]).to_pylist()
    }
    assert BudgetRollUp()(owned, day) is not None
    db.register("budget_days", DeltaTable(f"{settings.tables}/budget_days").to_pyarrow_dataset())
    (query,) = [sql for sql in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if "FROM budget_days" in sql]
    rows = db.execute(query).fetchall()
    found = {name: (month, active_s, throttled_s) for month, name, active_s, throttled_s, _ in rows}
    with Tables(owned) as tables:
        tables.open("decisions")
        to_ms = newest_ms(tables, owned.cluster_id)
        assert to_ms is not None
        owners = owners_of(owned)
        assert owners is not None
        budgets = budgets_at(
            tables, owned.cluster_id, to_ms + 3_600_000, by_owner(owners), has_buckets=True
        ).found
    # One date, and no midnight in it: the sums are those of the command.
    month = day.replace(day=1)
    assert found == {one.name: (month, *one.budget.period) for one in budgets} and "payments" in found
    assert [left for *_, left in rows] == [
        round(100 - 100 * throttled_s / (0.005 * active_s), 1) for _, active_s, throttled_s in found.values()
    ]


def test_a_day_without_rows_has_no_answers(opened: tuple[Any, Any]) -> None:
    db = opened[0]
    for name, day in (("from_time", 1), ("to_time", 2)):
        db.execute(f"SET VARIABLE {name} = TIMESTAMPTZ '{datetime(2020, 1, day, tzinfo=UTC).isoformat()}'")
    try:
        empty = {number for number in queries() if not asked(opened, number)}
    finally:
        for name, day in (("from_time", 21), ("to_time", 22)):
            db.execute(
                f"SET VARIABLE {name} = TIMESTAMPTZ '{datetime(2026, 11, day, tzinfo=UTC).isoformat()}'"
            )
    # Agreement, libraries, shared buckets and the limits themselves are not asked of a day.
    assert empty >= {"1", "2", "3", "4", "5", "6", "8", "9"}
