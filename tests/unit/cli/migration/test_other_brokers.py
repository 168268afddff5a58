"""Upgrades: another ring gives the verdicts that a replay with it has; windows, static defaults and callbacks too."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.loops.open_loop import THROTTLED_FETCHES
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.replay.files import replay_files
from tests.support.logs.captures import ZK37, ZOOKEEPER_LAG_MS
from tests.support.places import DATA
from tests.support.programs.command_output import run
from tests.support.reports.reviewed_tables import BASE, quota_file, sent, write_reviewed_tables
from tests.support.tables.capture_tables import write_capture
from tests.support.tables.table_rows import second, write_table

_Bucket = tuple[str, str, str]
"""Quota type, user and client id of a bucket."""


@pytest.fixture(scope="module")
def zk37(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of the tables of a capture of Kafka 3.7.2."""
    root = tmp_path_factory.mktemp("zk37")
    write_capture(root / "tables", ZK37)
    settings = root / "kquota.yaml"
    settings.write_text(
        f"cluster_id: test\ntables: {json.dumps(str(root / 'tables'))}\nbroker: {{version: '3.7'}}\n",
        encoding="utf-8",
    )
    return settings


def checked(settings: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of a check."""
    code, out, err = run("migration", "--config", str(settings), *words, "--output", "json")
    assert err == ""
    answer: dict[str, Any] = json.loads(out)
    return code, answer


def throttled(config: RateConfig) -> dict[_Bucket, list[tuple[object, int]]]:
    """Each request of the capture's log and its throttle (ms) by bucket; throttled fetches, without a size, not."""
    changes = read_quota_file(DATA / "zk37" / "quotas.yaml")
    governor = RuleGovernor(RuleBook(rule_periods(changes, apply_lag_ms=ZOOKEEPER_LAG_MS)))
    found = replay_files([(1, DATA / "zk37" / "broker-1.kafka-request.log.gz")], governor, config)
    return {
        (key.quota_type.value, key.bucket.user, key.bucket.client_id): [
            (verdict.point, verdict.throttle_ms)
            for verdict in verdicts
            if verdict.point.kind not in THROTTLED_FETCHES
        ]
        for key, verdicts in found.verdicts.items()
        if key.quota_type in BANDWIDTH
    }


def test_the_flips_of_a_3_7_capture_are_those_of_a_3_9_replay(zk37: Path) -> None:
    old, new = throttled(ZK37.config), throttled(RateConfig())
    only_after: Counter[_Bucket] = Counter()
    only_before: Counter[_Bucket] = Counter()
    for bucket, verdicts in old.items():
        for (point, was_ms), (other, now_ms) in zip(verdicts, new[bucket], strict=True):
            assert point == other
            only_after[bucket] += was_ms <= 0 < now_ms
            only_before[bucket] += now_ms <= 0 < was_ms
    code, answer = checked(zk37, "--to-version", "3.9")
    predicted = {
        (one["quota_type"], one["buckets"][0]["user"], one["buckets"][0]["client_id"]): (
            one["requests_throttled_only_after"],
            one["requests_throttled_only_before"],
        )
        for one in answer["affected"]
    }
    flips = {bucket: (only_after[bucket], only_before[bucket]) for bucket in old}
    assert {bucket: both for bucket, both in predicted.items() if any(both)} == {
        bucket: both for bucket, both in flips.items() if any(both)
    }
    assert sum(only_after.values()) > 100, "the two rings part in this capture"
    assert (answer["before"]["rings"], answer["after"]["rings"]) == (["<=3.7/11x1000ms"], ["3.8+/11x1000ms"])
    assert code == 3, "the older ring throttled little of this load"


def test_the_delay_after_an_upgrade_is_that_of_a_3_9_replay(zk37: Path) -> None:
    old, new = throttled(ZK37.config), throttled(RateConfig())
    _, answer = checked(zk37, "--to-version", "3.8.1")
    for one in answer["affected"]:
        if one["quota_type"] == "produce":
            bucket = one["quota_type"], one["buckets"][0]["user"], one["buckets"][0]["client_id"]
            delays = tuple(sum(max(ms, 0) for _, ms in side[bucket]) for side in (old, new))
            assert (one["delay_ms_before"], one["delay_ms_after"]) == delays


def test_an_upgrade_that_keeps_the_ring_passes(zk37: Path) -> None:
    code, answer = checked(zk37, "--to-version", "3.7.2")
    assert (code, answer["affected"], answer["verdict"]) == (0, [], "pass")


def test_more_delay_up_to_the_option_passes_and_more_than_the_budget_stops(zk37: Path) -> None:
    _, answer = checked(zk37, "--to-version", "3.9")
    more_ms = sum(max(0, one["delay_ms_after"] - one["delay_ms_before"]) for one in answer["affected"])
    seconds = -(-more_ms // 1_000)
    upgrade = ("--to-version", "3.9", "--budget-delay")
    assert checked(zk37, *upgrade, f"{seconds}s", "--pass-delay", f"{seconds}s")[0] == 0
    assert checked(zk37, *upgrade, f"{seconds}s", "--pass-delay", f"{seconds - 1}s")[0] == 2
    assert checked(zk37, *upgrade, f"{seconds - 1}s")[0] == 3


def test_other_windows_give_the_throttles_of_their_arithmetic(tmp_path: Path) -> None:
    # 5 windows of 2 s: the ring measures over 8 s instead of 10 s.
    #   alice (1,800,000 - 8 x 150,000) / 150,000 = 4 s instead of (1,800,000 - 10 x 150,000) / 150,000 = 2 s
    #   bob    1,000,000 <= 8 x 200,000, carol 500,000 <= 8 x 100,000: no throttle on either side
    settings = write_reviewed_tables(tmp_path)
    side = quota_file(tmp_path, "quotas.yaml", BASE)
    words = ("--before", str(side), "--to-window-num", "5", "--to-window-size-seconds", "2")
    code, answer = checked(settings, *words)
    [alice] = answer["affected"]
    assert code == 2
    assert alice["clients"] == [{"user": "alice", "client_id": "app"}]
    assert (alice["delay_ms_before"], alice["delay_ms_after"]) == (2_000, 4_000)
    assert (alice["throttled_requests_before"], alice["throttled_requests_after"]) == (1, 1)
    assert answer["after"]["rings"] == ["3.8+/5x2000ms"]


def test_the_delay_of_clients_that_wait_is_beside_that_of_the_recorded_times(tmp_path: Path) -> None:
    # 5 windows of 1 s instead of 11, under 150,000 B/s. Before, alice waits 12 s - 10 s and sends again 1 s later:
    # 14 s - 10 s. After, 12 s - 4 s. At the recorded 3 s the second request would wait 14 s - 4 s. A client that waits
    # sends it at 9 s, when the window has forgotten the first one, and after the end of the traffic.
    settings = write_reviewed_tables(tmp_path)
    shutil.rmtree(tmp_path / "tables" / "usage")
    write_table(tmp_path / "tables", "usage", sent("alice", 1_800_000), sent("alice", 300_000, at_s=3))
    side = quota_file(tmp_path, "quotas.yaml", BASE)
    words = ("--before", str(side), "--to-window-num", "5")
    _, answer = checked(settings, *words)
    [alice] = answer["affected"]
    assert (alice["delay_ms_before"], alice["delay_ms_after"]) == (6_000, 18_000)
    assert (alice["throttled_requests_after_closed"], alice["delay_ms_after_closed"]) == (1, 8_000)
    assert (alice["delay_ms_after_closed_low"], alice["delay_ms_after_closed_high"]) == (0, 16_400)
    assert alice["deferred_bytes"] == 300_000
    _, out, _ = run("migration", "--config", str(settings), *words)
    assert (
        " | 6.00\u00a0s → ≤\u00a018.0\u00a0s | 8.00\u00a0s\u00a0(0\u00a0ms\u00a0to\u00a016.4\u00a0s) | "
        in out
    )


def test_an_upgrade_to_3_0_ends_the_static_defaults(tmp_path: Path) -> None:
    # dave has no rule: quota.producer.default holds for his client id until 2.8.
    settings = write_reviewed_tables(tmp_path)
    side = quota_file(tmp_path, "quotas.yaml", BASE)
    text = settings.read_text(encoding="utf-8")
    settings.write_text(
        f"{text}broker: {{version: '2.8', quota_producer_default: 20000}}\n", encoding="utf-8"
    )
    code, answer = checked(settings, "--before", str(side), "--to-version", "3.0")
    [dave] = [one for one in answer["affected"] if {"user": "dave", "client_id": "app"} in one["clients"]]
    # (300,000 - 10 x 20,000) / 20,000 = 5 s before, nothing after.
    assert (dave["delay_ms_before"], dave["delay_ms_after"]) == (5_000, 0)
    assert dave["limits"] == [{"before_per_s": 20_000.0, "after_per_s": None}]
    assert (
        code,
        "a limit ends, and clients are then unlimited" in [one["text"] for one in answer["reasons"]],
    ) == (
        2,
        True,
    )


@pytest.fixture
def with_callback(tmp_path: Path) -> Path:
    """A callback that gives broker 1 half of a quota of 200 kB/s, as it leads two of four partitions of the group."""
    tables = tmp_path / "tables"
    write_table(tables, "usage", sent("pay_a", 1_800_000))
    write_table(tables, "decisions")
    write_table(
        tables, "quota_rules",
        {"cluster_id": "demo", "level": 3, "entity": "users/pay_", "producer_byte_rate": 200_000.0,
         "valid_from": second(-3_600), "version": 1, "source": "admin"},
    )  # fmt: skip
    write_table(
        tables, "partition_leaders",
        *({"cluster_id": "demo", "topic": "pay_orders", "partition": number, "leader": 1 + number // 2,
           "is_deleted": False, "observed_at": second(-3_600)} for number in range(4)),
    )  # fmt: skip
    settings = tmp_path / "kquota.yaml"
    settings.write_text(
        f"cluster_id: demo\ntables: {json.dumps(str(tables))}\n"
        "quotas: {callback: 'kquota_spark.model.quotas.group_callbacks:PartitionBasedCallback'}\n",
        encoding="utf-8",
    )
    return settings


@pytest.mark.parametrize(
    "brokers", [("--to-version", "5.0"), ("--to-kraft",), ("--to-kraft", "--to-version", "3.9.1")]
)
def test_a_callback_without_metadata_gives_the_whole_limit(
    with_callback: Path, brokers: tuple[str, ...]
) -> None:
    code, answer = checked(with_callback, *brokers)
    [group] = answer["affected"]
    # (1,800,000 - 10 x 100,000) / 100,000 = 8 s before; 1,800,000 <= 10 x 200,000 after.
    assert (code, group["delay_ms_before"], group["delay_ms_after"]) == (2, 8_000, 0)
    assert group["limits"] == [{"before_per_s": 100_000.0, "after_per_s": 200_000.0}]
    assert group["buckets"] == [{"user": "", "client_id": "", "tags": {"group": "pay"}}]


@pytest.mark.parametrize("brokers", [("--to-version", "4.1"), ("--to-kraft", "--to-version", "4.0")])
def test_a_callback_with_metadata_on_both_sides_passes(with_callback: Path, brokers: tuple[str, ...]) -> None:
    code, answer = checked(with_callback, *brokers)
    assert (code, answer["affected"]) == (0, [])


def test_the_ticket_names_the_tag_of_a_callback(with_callback: Path) -> None:
    code, out, err = run("migration", "--config", str(with_callback), "--to-version", "5.0")
    assert (code, err) == (2, "")
    assert "| tag `group=pay` | produce | 100\u00a0kB/s → 200\u00a0kB/s |" in out
    assert "**1 bucket of the quota callback: another limit or verdict. Total delay: 8.00 s → 0 ms.**" in out
