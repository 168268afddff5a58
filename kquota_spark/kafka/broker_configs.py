"""Queries the settings of each broker and keeps `broker_configs`; JUDGE replays each broker with its own windows."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.broker_checks import answer_errors, asking, callback_checks, entries
from kquota_spark.model.measure.broker_config import KAFKA_KEYS, BrokerConfig, described_config
from kquota_spark.model.measure.sampled_rate import RingVariant
from kquota_spark.process.check import Check, Status, ok, warn
from kquota_spark.process.polling import Polling
from kquota_spark.schema.broker_tables import BROKER_CONFIGS
from kquota_spark.schema.gap_tables import BROKER_RESTART, LOG_GAPS
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.delta.table import sql_text
from kquota_spark.store.storage import delta_table, delta_table_if_there

_log = logging.getLogger(__name__)
_NAMES = [field.name for field in fields(BrokerConfig)]
_UPDATE_METADATA = 6
_WHAT = "broker settings"


class BrokerConfigs(Polling):
    """The rows of one cluster in `broker_configs`, and the thread that keeps them up to date."""

    def __init__(
        self,
        settings: Settings,
        clock_ms: Callable[[], int],
        asked: Callable[[Settings], list[BrokerConfig]] | None = None,
    ) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._asked = asked or asked_brokers
        self._reported: set[str] = set()
        self._answered: dict[int | None, dt.datetime] = {}
        """When each broker last answered; `broker_configs` does not record an answer that is the same as before."""
        super().__init__("asking the brokers", settings.broker.ask_interval, self._ask_again)

    def ask(self) -> list[Check]:
        """Query the brokers once and write what is new; return what the user should know.

        Brokers that do not answer are a finding.

        Raises:
            UserError: the table cannot be written.
        """
        try:
            with answer_errors():
                found = self._asked(self._settings)
        except UserError as error:
            return self._not_asked(str(error))
        silent = [config.broker_id for config in found if config.quota_window_num is None]
        if silent:
            return self._not_asked(
                f"broker {silent[0]} does not give its settings: grant DescribeConfigs on the cluster"
            )
        self._write(found)
        return [check for check in config_checks(found, self._settings) if check.status is not Status.OK]

    def _ask_again(self) -> None:
        findings = {f"{finding.evidence}: {finding.advice}" for finding in self.ask()}
        for text in sorted(findings - self._reported):
            _log.warning("%s", text)
        self._reported = findings

    def _not_asked(self, reason: str) -> list[Check]:
        """The finding that brokers did not answer. They are judged by their stored settings, else by the file's."""
        broker = self._settings.broker
        stored = stored_configs(self._settings)
        if not any(config.broker_id is not None for config in stored):
            windows, size_s = broker.quota_window_num, broker.quota_window_size_seconds
            source = "configuration file"
            self._write([BrokerConfig(None, broker.version, source, None, windows, size_s, source=source)])
            used = f"{windows} windows of {size_s} s and version {broker.version} of the settings are used for all"
        else:
            used = "they are judged by their last known settings (broker_configs)"
        evidence = f"the brokers of {self._settings.cluster_id} could not be asked ({reason})"
        return [warn(_WHAT, evidence, f"{used}; compare them with the brokers' server.properties")]

    def _write(self, found: Collection[BrokerConfig]) -> None:
        with delta_errors(f"{self._settings.tables}: {BROKER_CONFIGS.name} cannot be written"):
            now = dt.datetime.fromtimestamp(self._clock_ms() / 1_000, dt.UTC)
            _record(self._settings, list(found), now, self._answered)
        self._answered |= {config.broker_id: now for config in found}


def asked_brokers(settings: Settings) -> list[BrokerConfig]:
    """The settings that each broker of the cluster reports; errors are kafka-python's own."""
    with asking(settings) as admin:
        return described_brokers(admin)


def described_brokers(admin: Any) -> list[BrokerConfig]:
    """The settings that each broker reports, by id; `admin` is an open `KafkaAdminClient`."""
    found = []
    for broker_id in sorted(int(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"]):
        offered = admin.get_broker_version_data(broker_id)
        of_broker = entries(admin, "BROKER", str(broker_id), KAFKA_KEYS)
        speaks_like = ".".join(map(str, offered.broker_version[:2]))
        # Only brokers with ZooKeeper offer this request between brokers.
        has_zookeeper = _UPDATE_METADATA in (offered.api_versions or {})
        found.append(described_config(broker_id, of_broker, speaks_like, has_zookeeper=has_zookeeper))
    return found


def config_checks(configs: Iterable[BrokerConfig], settings: Settings) -> list[Check]:
    """One check for each broker: a warning if settings of the file differ from the broker's; also its callback."""
    checks: list[Check] = []
    given = settings.broker
    for config in configs:
        if config.broker_id is None:
            continue
        windows = f"{config.quota_window_num} windows of {config.quota_window_size_seconds} s"
        evidence = f"broker {config.broker_id}: {windows}, version {config.version} ({config.version_source})"
        differs = {
            "version": config.sample_ring is not RingVariant.of_version(given.version),
            "quota_window_num": config.quota_window_num != given.quota_window_num,
            "quota_window_size_seconds": config.quota_window_size_seconds != given.quota_window_size_seconds,
        }
        others = [f"broker.{name}" for name in differs if differs[name] and name in given.given]
        for kind in ("producer", "consumer"):
            name = f"quota_{kind}_default"
            if (getattr(config, name) or 0) != getattr(given, name):
                others.append(f"broker.{name}")
                evidence += f", quota.{kind}.default {getattr(config, name) or 'not set'}"
        if others:
            advice = f"{' and '.join(others)}: the settings say something else, and win: correct them"
            checks.append(warn(_WHAT, evidence, advice))
        else:
            checks.append(ok(_WHAT, evidence))
        callback = config.quota_callback_class or ""
        checks += callback_checks(config.broker_id, callback, settings.quotas.callback)
    return checks


def stored_configs(settings: Settings) -> list[BrokerConfig]:
    """The last known settings of each broker of this cluster; none if no query was ever made."""
    rows = _rows(settings)
    return [BrokerConfig(**{name: row[name] for name in _NAMES}) for row in rows if row["valid_to"] is None]


def _rows(settings: Settings) -> list[dict[str, Any]]:
    table = delta_table_if_there(settings, BROKER_CONFIGS.name)
    if table is None:
        return []
    mine = [("cluster_id", "=", settings.cluster_id)]
    return list(table.rows(filters=mine).to_pylist())


def _restarted_at(settings: Settings, broker_id: int | None, after: dt.datetime) -> dt.datetime | None:
    """The last restart of a broker, found by the audit in its log; None if there was none after `after`."""
    table = delta_table_if_there(settings, LOG_GAPS.name)
    if table is None or broker_id is None:
        return None
    mine = [
        ("cluster_id", "=", settings.cluster_id), ("broker_id", "=", broker_id), ("reason", "=", BROKER_RESTART)
    ]  # fmt: skip
    rows = table.rows(filters=mine).to_pylist()
    return max((row["to_time"] for row in rows if row["to_time"] > after), default=None)


def _record(
    settings: Settings,
    found: list[BrokerConfig],
    now: dt.datetime,
    answered: Mapping[int | None, dt.datetime],
) -> None:
    """Write the table if the settings of a broker changed; a broker that did not answer keeps its rows.

    A broker takes new settings only when it starts. If its log shows a restart after its last answer, they hold since
    then. Otherwise they hold from now on.
    """
    import pyarrow as pa

    from kquota_spark.store.creation import create_table

    create_table(settings, BROKER_CONFIGS)
    rows = _rows(settings)
    is_changed = False
    for config in found:
        reported = asdict(config)
        of_broker = [row for row in rows if row["valid_to"] is None and row["broker_id"] == config.broker_id]
        last = of_broker[0] if of_broker else None
        if last is not None and all(last[name] == value for name, value in reported.items()):
            continue
        is_changed = True
        begun: Any = now
        if last is not None:
            # Another process may have written the row: then the broker answered that process later than this one.
            if config.broker_id in answered:
                after = max(answered[config.broker_id], last["observed_at"])
                begun = _restarted_at(settings, config.broker_id, after) or now
            last["valid_to"] = begun
        reported |= {
            "cluster_id": settings.cluster_id,
            "sample_ring": config.sample_ring.value,
            "observed_at": now,
        }
        rows.append(reported | {"valid_from": None if last is None else begun, "valid_to": None})
    if is_changed:
        delta_table(settings, BROKER_CONFIGS.name).replace(
            pa.Table.from_pylist(rows, schema=BROKER_CONFIGS.arrow_schema()),
            f"cluster_id = {sql_text(settings.cluster_id)}",
        )
