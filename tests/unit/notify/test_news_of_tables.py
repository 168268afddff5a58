"""What the tables show becomes events: each once, with its end, and for the routes of its owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kquota_spark.config.routes import Slack
from kquota_spark.enforce.changes import Event, Mode
from kquota_spark.enforce.ports import Frozen
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    request,
    second,
    source,
    usage,
    violation,
    write_table,
)
from tests.support.tables.told_news import Told, entry, logged


def ended(root: Path, episode_id: str, end_s: int) -> None:
    """An open episode ends, as the job writes it."""
    table = DeltaTable(str(root / "violations"))
    table.update({"end_time": f"'{second(end_s).isoformat()}'"}, predicate=f"episode_id = '{episode_id}'")


def test_a_violation_is_told_once_when_it_begins_and_once_when_it_is_over(tmp_path: Path) -> None:
    told = Told(tmp_path)
    write_table(tmp_path, "violations")
    assert told.read() == {}
    write_table(tmp_path, "violations", violation(0, None))
    assert told.read() == {"ops": ["demo/violation/e0 begins"]}
    assert told.read() == {}
    ended(tmp_path, "e0", 30)
    assert told.read() == {"ops": ["demo/violation/e0/over over"]}
    assert told.read() == {}


def test_the_first_read_tells_of_what_is_open_and_not_of_history(tmp_path: Path) -> None:
    write_table(tmp_path, "violations", violation(-600, 30), violation(0, None))
    told = Told(tmp_path)
    assert told.read() == {"ops": ["demo/violation/e0 begins"]}
    assert told.read() == {}


def test_an_episode_between_two_reads_is_told_of_once_as_over(tmp_path: Path) -> None:
    write_table(tmp_path, "violations", violation(0))
    told = Told(tmp_path)
    told.read()
    write_table(tmp_path, "violations", violation(20, 5))
    assert told.read() == {"ops": ["demo/violation/e20/over over"]}
    assert told.read() == {}


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        ({"throttled_ms": 9_999}, False),
        ({"throttled_ms": 10_000}, True),
        ({"throttled_ms": 99_999, "observed_throttled_ms": 9_999}, False),
        ({"throttled_ms": 0, "observed_throttled_ms": 10_000}, True),
        ({"throttled_ms": None, "source": "jmx"}, True),
        ({"peak_quota_used_percent": 109.9}, False),
    ],
)
def test_only_violations_above_the_thresholds_are_news(
    tmp_path: Path, changed: dict[str, object], is_told: bool
) -> None:
    write_table(tmp_path, "violations", violation(0, None, **changed))
    told = Told(tmp_path, least_delay=10_000, least_used_percent=110.0)
    assert bool(told.read()) is is_told


def test_an_episode_that_a_restatement_removed_is_over(tmp_path: Path) -> None:
    write_table(tmp_path, "violations", violation(0, None))
    told = Told(tmp_path)
    told.read()
    DeltaTable(str(tmp_path / "violations")).delete("episode_id = 'e0'")
    assert told.read() == {"ops": ["demo/violation/e0/over over"]}


def test_the_rows_of_other_clusters_are_no_news(tmp_path: Path) -> None:
    write_table(tmp_path, "violations", violation(0, None, cluster_id="other"))
    assert Told(tmp_path).read() == {}


def test_an_owner_hears_of_own_buckets_and_of_buckets_that_the_owner_is_in(tmp_path: Path) -> None:
    routes = {
        "alice": Slack(kind="slack", url="http://a", users=("alice",)),
        "etl": Slack(kind="slack", url="http://a", client_ids=("etl-.*",)),
        "all": Slack(kind="slack", url="http://a"),
        "plans": Slack(kind="slack", url="http://a", events=("plan_waiting",)),
    }
    bob = {"users": ["bob"], "client_ids": ["app"]}
    write_table(
        tmp_path,
        "violations",
        violation(0, None, bucket_user="alice"),
        violation(1, None, bucket_user="bob", **bob),
        violation(2, None, bucket_user="", bucket_client_id="shared", users=["alice", "bob"]),
        violation(3, None, bucket_user="bob", bucket_client_id="etl-7", users=["bob"]),
        violation(4, None, bucket_user="alice-2", **(bob | {"client_ids": ["etl"]})),
    )
    ids = {name: [event[15:17] for event in events] for name, events in Told(tmp_path, routes).read().items()}
    assert ids == {"alice": ["e0", "e2"], "etl": ["e3"], "all": ["e0", "e1", "e2", "e3", "e4"]}


def test_the_end_goes_where_the_beginning_went(tmp_path: Path) -> None:
    routes = {"alice": Slack(kind="slack", url="http://a", users=("alice",))}
    write_table(
        tmp_path, "violations", violation(0, None, bucket_user="", bucket_client_id="x", users=["alice"])
    )
    told = Told(tmp_path, routes)
    told.read()
    table = DeltaTable(str(tmp_path / "violations"))
    table.update(new_values={"end_time": second(9), "users": ["bob"]})
    assert told.read() == {"alice": ["demo/violation/e0/over over"]}


def test_a_plan_waits_until_somebody_decides_and_each_change_is_told_once(tmp_path: Path) -> None:
    told = Told(tmp_path)
    logged(told.settings, entry(Event.APPLIED, 9))
    assert told.read() == {}  # history
    logged(told.settings, entry(Event.PLANNED))
    assert told.read() == {"ops": ["demo/plan_waiting/p-1/1 begins"]}
    logged(told.settings, entry(Event.APPROVED))
    assert told.read() == {"ops": ["demo/plan_waiting/p-1/1/over over"]}
    logged(told.settings, entry(Event.SENDING), entry(Event.APPLIED))
    assert told.read() == {"ops": ["demo/applied/p-1/1/5 once"]}
    logged(told.settings, entry(Event.RESTORING), entry(Event.RESTORED), entry(Event.FAILED, 2))
    assert told.read() == {"ops": ["demo/rolled_back/p-1/1/7 once", "demo/failed/p-1/2/8 once"]}
    assert told.read() == {}


def test_a_plan_that_nobody_may_approve_any_more_waits_no_longer(tmp_path: Path) -> None:
    told = Told(tmp_path)
    logged(told.settings, entry(Event.PLANNED))
    assert told.read() == {"ops": ["demo/plan_waiting/p-1/1 begins"]}
    assert told.read(at_s=86_401) == {"ops": ["demo/plan_waiting/p-1/1/over over"]}


def test_a_plan_that_only_observes_waits_for_nobody(tmp_path: Path) -> None:
    told = Told(tmp_path)
    logged(told.settings, entry(Event.PLANNED, mode=Mode.OBSERVE))
    assert told.read() == {}


def test_the_switch_is_told_of_when_it_is_set_and_when_it_is_taken_back(tmp_path: Path) -> None:
    told, switch = Told(tmp_path), FreezeSwitch(Told(tmp_path).settings)
    assert told.read() == {}
    switch.freeze(Frozen(T0_MS, "ops", "incident"))
    assert told.read() == {"ops": [f"demo/frozen/{T0_MS} begins"]}
    assert told.read() == {}
    switch.unfreeze()
    assert told.read() == {"ops": [f"demo/frozen/{T0_MS}/over over"]}


def test_the_audit_is_behind_when_lines_verdicts_or_quotas_are_old(tmp_path: Path) -> None:
    told = Told(tmp_path, behind_after=300_000)
    write_table(tmp_path, "requests", request(0))
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", decision(0))
    write_table(tmp_path, "quota_rules", source(0))
    assert told.read(at_s=300) == {}
    at_ms = T0_MS + 301_000
    behind = [f"demo/audit_behind/{part}/{at_ms} begins" for part in ("log", "quotas")]
    assert told.read(at_s=301) == {"ops": behind}
    assert told.read(at_s=302) == {}
    write_table(tmp_path, "requests", request(1, T0_MS + 301_000))
    write_table(tmp_path, "usage", usage(301))
    over = f"demo/audit_behind/log/{at_ms}/over over"
    assert told.read(at_s=303) == {"ops": [f"demo/audit_behind/verdicts/{T0_MS + 303_000} begins", over]}


def test_a_cluster_is_behind_though_another_one_in_the_same_tables_is_not(tmp_path: Path) -> None:
    told = Told(tmp_path, behind_after=300_000)
    write_table(tmp_path, "requests", request(0))
    write_table(tmp_path, "usage", usage(0))
    write_table(tmp_path, "decisions", decision(0))
    assert told.read(at_s=300) == {}
    write_table(tmp_path, "requests", request(1, T0_MS + 300_000, cluster_id="live"))
    begun_ms = T0_MS + 301_000
    assert told.read(at_s=301) == {"ops": [f"demo/audit_behind/log/{begun_ms} begins"]}
    # Two hours later no file of the last hour is of this cluster: it is still behind.
    write_table(tmp_path, "requests", request(2, T0_MS + 7_200_000, cluster_id="live"))
    assert told.read(at_s=7_200) == {}


def test_the_audit_disagrees_below_99_percent_of_100_verdicts_of_an_hour(tmp_path: Path) -> None:
    told = Told(tmp_path)
    old = decision(-3_601, requests_judged=1_000, requests_agreeing=0)
    write_table(tmp_path, "decisions", old, decision(0, requests_judged=99, requests_agreeing=0))
    assert told.read() == {}
    write_table(tmp_path, "decisions", decision(1, requests_judged=101, requests_agreeing=101))
    assert told.read(at_s=119) == {}  # asked once per minute
    assert told.read(at_s=120) == {"ops": [f"demo/audit_disagreeing/{T0_MS + 120_000} begins"]}
    write_table(tmp_path, "decisions", decision(2, requests_judged=9_800, requests_agreeing=9_800))
    assert told.read(at_s=180) == {"ops": [f"demo/audit_disagreeing/{T0_MS + 120_000}/over over"]}
