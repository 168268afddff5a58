"""What a broker says about itself, what the settings say, and which of the two counts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Broker, Settings
from kquota_spark.kafka.broker_configs import BrokerConfigs, config_checks, stored_configs
from kquota_spark.model.measure.broker_config import IBP, BrokerConfig, described_config
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.process.check import Status
from kquota_spark.schema.gap_tables import BROKER_RESTART, MID_STREAM
from kquota_spark.store.creation import create_tables
from tests.support.tables.table_rows import write_table


def entry(value: str | None, source: str = "STATIC_BROKER_CONFIG") -> dict[str, str | None]:
    return {"value": value, "config_source": source}


@pytest.mark.parametrize(
    ("protocol", "speaks_like", "version", "ring"),
    [
        (entry("3.7-IV4", "DEFAULT_CONFIG"), "3.9", "3.7", RingVariant.UP_TO_3_7),  # the release's own
        (entry("2.8-IV1"), "3.9", "3.9", RingVariant.FROM_3_8),  # left behind in an upgrade: a lower bound
        (None, "4.1", "4.1", RingVariant.FROM_3_8),  # 4.x has none
    ],
)
def test_the_version_is_sure_only_by_a_default_of_the_release(
    protocol: dict[str, str | None] | None, speaks_like: str, version: str, ring: RingVariant
) -> None:
    found = {} if protocol is None else {IBP: protocol}
    config = described_config(1, found, speaks_like, has_zookeeper=True)
    assert (config.version, config.sample_ring, config.metadata) == (version, ring, "zookeeper")
    assert (config.version_source == IBP) is (version != speaks_like)


def test_numbers_that_are_not_set_are_none() -> None:
    found = {
        "quota.window.num": entry("5"),
        "quota.producer.default": entry(str(2**63 - 1), "DEFAULT_CONFIG"),
        "quota.consumer.default": entry("7"),
        "client.quota.callback.class": entry(None, "DEFAULT_CONFIG"),
    }
    config = described_config(1, found, "2.8", has_zookeeper=False)
    assert (config.quota_window_num, config.quota_window_size_seconds) == (5, None)
    assert (config.quota_producer_default, config.quota_consumer_default) == (None, 7)
    assert (config.quota_callback_class, config.metadata) == (None, "kraft")


@pytest.mark.parametrize(
    "config", [RateConfig(), RateConfig(5, 2_000, RingVariant.UP_TO_3_7), RateConfig(1, 1_000)]
)
def test_a_rate_config_comes_back_from_its_name(config: RateConfig) -> None:
    assert RateConfig.parse(config.name) == config


def test_only_what_the_file_sets_wins_over_the_brokers(tmp_path: Path) -> None:
    path = tmp_path / "kquota.yaml"
    text = "broker:\n  version:\n  quota_window_num: 11\n  log_time_zone: UTC\n"
    path.write_text(text, encoding="utf-8")
    assert load_settings(path).broker.given == {"quota_window_num", "log_time_zone"}
    assert load_settings(path) == Settings()


def read_rows(root: Path) -> list[dict[str, Any]]:
    rows = DeltaTable(str(root / "broker_configs")).to_pyarrow_table().to_pylist()
    return [
        {name: round(v.timestamp() * 1_000) if hasattr(v, "timestamp") else v for name, v in row.items()}
        for row in rows
    ]


TELLS_5 = BrokerConfig(1, "3.9", IBP, "kraft", 5, 1)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (frozenset[str](), Status.OK),
        (frozenset({"quota_window_num"}), Status.WARN),
        (frozenset({"version"}), Status.OK),
    ],
)
def test_a_setting_that_disagrees_is_a_warning(given: frozenset[str], status: Status) -> None:
    [check] = config_checks([TELLS_5], Settings(broker=Broker(given=given)))
    assert check.status is status
    assert check.evidence == "broker 1: 5 windows of 1 s, version 3.9 (inter.broker.protocol.version)"
    if status is Status.WARN:
        assert (
            check.advice == "broker.quota_window_num: the settings say something else, and win: correct them"
        )


def test_a_static_default_that_the_settings_do_not_know_is_a_warning() -> None:
    config = BrokerConfig(1, "2.8", "api versions", "zookeeper", 11, 1, quota_producer_default=9)
    [check] = config_checks([config], Settings(broker=Broker(version="2.8")))
    assert (check.status, check.evidence[-26:]) == (Status.WARN, ", quota.producer.default 9")


def test_each_change_of_a_broker_is_a_row_and_one_that_is_away_keeps_its_last(tmp_path: Path) -> None:
    answers: list[list[BrokerConfig]] = []
    settings = Settings(cluster_id="it's one", tables=str(tmp_path))
    clock = iter(range(1_000, 9_000, 1_000))
    brokers = BrokerConfigs(settings, lambda: next(clock), lambda _: answers.pop(0))
    two, other = BrokerConfig(2, "3.7", IBP, "kraft", 11, 1), BrokerConfig(1, "3.9", IBP, "kraft", 7, 2)
    answers += [[TELLS_5, two], [TELLS_5], [other]]
    for _ in range(3):
        assert brokers.ask() == []
    rows = read_rows(tmp_path)
    found = {(row["broker_id"], row["valid_from"], row["valid_to"], row["quota_window_num"]) for row in rows}
    assert found == {(1, None, 3_000, 5), (1, 3_000, None, 7), (2, None, None, 11)}
    assert {row["broker_id"]: row["sample_ring"] for row in rows} == {1: "3.8+", 2: "<=3.7"}
    assert sorted(stored_configs(settings), key=lambda config: config.broker_id or 0) == [other, two]


def test_other_settings_hold_since_the_restart_of_which_the_log_tells(tmp_path: Path) -> None:
    answers = [[TELLS_5], [BrokerConfig(1, "4.1", IBP, "kraft", 30, 1)], [TELLS_5]]
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    clock = iter((1_000, 9_000, 12_000))
    brokers = BrokerConfigs(settings, lambda: next(clock), lambda _: answers.pop(0))
    brokers.ask()
    create_tables(settings)
    gap = {"cluster_id": "demo", "broker_id": 1, "from_time": at(2_000), "reason": BROKER_RESTART}
    write_table(
        tmp_path,
        "log_gaps",
        {**gap, "to_time": at(3_000)},
        {**gap, "to_time": at(5_000)},
        {**gap, "to_time": at(6_000), "broker_id": 2},
        {**gap, "to_time": at(7_000), "reason": MID_STREAM},
        {**gap, "to_time": at(8_000), "cluster_id": "another"},
    )
    for _ in range(2):
        brokers.ask()
    found = {(row["valid_from"], row["valid_to"], row["quota_window_num"]) for row in read_rows(tmp_path)}
    # Of the second change the log does not tell: it holds from when the broker was asked.
    assert found == {(None, 5_000, 5), (5_000, 12_000, 30), (12_000, None, 5)}


def test_a_restart_after_which_a_broker_told_the_old_settings_did_not_bring_the_new_ones(
    tmp_path: Path,
) -> None:
    tells_30 = BrokerConfig(1, "4.1", IBP, "kraft", 30, 1)
    answers = [[TELLS_5], [TELLS_5], [tells_30], [TELLS_5], [tells_30]]
    settings = Settings(cluster_id="demo", tables=str(tmp_path))
    create_tables(settings)
    gap = {"cluster_id": "demo", "broker_id": 1, "from_time": at(2_000), "reason": BROKER_RESTART}
    clock = iter((1_000, 4_000, 9_000, 12_000, 15_000))
    brokers = BrokerConfigs(settings, lambda: next(clock), lambda _: answers.pop(0))
    brokers.ask()
    write_table(tmp_path, "log_gaps", {**gap, "to_time": at(3_000)})
    brokers.ask()  # at 4,000 it told the same as at 1,000
    brokers.ask()
    periods = [(None, 9_000, 5), (9_000, None, 30)]
    assert periods_of(tmp_path) == periods
    # Another driver does not know what the broker told before it came: at 10,500 perhaps 30.
    write_table(tmp_path, "log_gaps", {**gap, "to_time": at(10_000)})
    anew = BrokerConfigs(settings, lambda: next(clock), lambda _: answers.pop(0))
    anew.ask()
    periods = [(None, 9_000, 5), (9_000, 12_000, 30), (12_000, None, 5)]
    assert periods_of(tmp_path) == periods
    # The first driver again, which did not see the row of 12,000: that row is an answer too.
    brokers.ask()
    periods = [(None, 9_000, 5), (9_000, 12_000, 30), (12_000, 15_000, 5), (15_000, None, 30)]
    assert periods_of(tmp_path) == periods


def periods_of(root: Path) -> list[tuple[int | None, int | None, int]]:
    """From, to and windows of each row, in order of time."""
    rows = [(row["valid_from"], row["valid_to"], row["quota_window_num"]) for row in read_rows(root)]
    return sorted(rows, key=lambda row: row[0] or 0)


def at(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC)


def test_brokers_that_cannot_be_asked_are_a_warning_and_the_settings_are_recorded(tmp_path: Path) -> None:
    def refused(_: Settings) -> list[BrokerConfig]:
        raise ConnectionRefusedError

    settings = Settings(tables=str(tmp_path))
    [finding] = BrokerConfigs(settings, lambda: 1_000, refused).ask()
    assert finding.evidence == "the brokers of kafka could not be asked (ConnectionRefusedError)"
    assert finding.advice.startswith("11 windows of 1 s and version 3.9 of the settings are used for all;")
    [row] = read_rows(tmp_path)
    assert (row["broker_id"], row["source"], row["quota_window_num"]) == (None, "configuration file", 11)
