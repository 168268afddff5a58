"""Poll the leaders of partitions into `partition_leaders`, for quota callbacks that depend on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.kafka.questions import admin_client, asked_topics
from kquota_spark.model.quotas.quota_callback import LeaderBook, LeaderChange, TopicPartition
from kquota_spark.process.polling import Polling
from kquota_spark.quotas.stored import stored_leaders
from kquota_spark.schema.quota_tables import PARTITION_LEADERS
from kquota_spark.store.delta.errors import delta_errors
from kquota_spark.store.delta.table import StoredTable
from kquota_spark.store.storage import place_of, storage_options
from kquota_spark.store.table_log import set_log_properties

_log = logging.getLogger(__name__)

Leaders = Mapping[TopicPartition, int | None]


class LeaderWatcher(Polling):
    """Polls one cluster until stopped; does nothing if no callback is configured."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        super().__init__("watching leaders", settings.quotas.leaders_interval, self._read_again)
        self._known: Leaders = {}

    def start(self) -> None:
        """Poll once, then continue in a thread.

        Raises:
            UserError: Kafka does not answer, or the table cannot be written.
        """
        if not self._settings.quotas.callback:
            return
        self._table = self._opened()
        self._known = LeaderBook(stored_leaders(self._settings)).at(self._clock_ms()).leaders
        self._client = admin_client(self._settings)
        self._read()
        super().start()

    def _read_again(self) -> None:
        try:
            self._read()
        except UserError as error:
            # An unreachable cluster has no traffic that could be judged wrongly.
            _log.warning("leaders of partitions are not known: %s", error)

    def _read(self) -> None:
        observed_at_ms = self._clock_ms()
        found = leaders_of(asked_topics(self._client, self._settings))
        rows = [self._row(change) for change in leader_changes(self._known, found, observed_at_ms)]
        if rows:
            data = pa.Table.from_pylist(rows, schema=PARTITION_LEADERS.arrow_schema())
            with delta_errors(f"{self._settings.tables}: {PARTITION_LEADERS.name} cannot be written"):
                self._table.append(data)
        self._known = found

    def _opened(self) -> StoredTable:
        uri = place_of(self._settings.tables, PARTITION_LEADERS.name)
        with delta_errors(f"{uri}: cannot be opened as a Delta table"):
            opened = StoredTable.created(
                uri,
                PARTITION_LEADERS.arrow_schema(),
                PARTITION_LEADERS.log_properties,
                storage_options(self._settings),
            )
            set_log_properties(opened, PARTITION_LEADERS)
            opened.flush()
            return opened

    def _row(self, change: LeaderChange) -> dict[str, Any]:
        return {
            "cluster_id": self._settings.cluster_id,
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "leader": change.leader,
            "is_deleted": change.is_deleted,
            "observed_at": change.changed_at_ms * 1_000,
        }


def leaders_of(topics: Mapping[str, Any]) -> dict[TopicPartition, int | None]:
    """The leaders in the metadata of the admin client; None for librdkafka's -1, which means no leader."""
    return {
        TopicPartition(name, number): partition.leader if partition.leader >= 0 else None
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
    }


def leader_changes(known: Leaders, found: Leaders, observed_at_ms: int) -> list[LeaderChange]:
    """The changes from `known` to `found`: new leaders, other leaders, and deleted partitions, by partition."""
    changes = [
        LeaderChange(partition, leader, observed_at_ms)
        for partition, leader in found.items()
        if partition not in known or known[partition] != leader
    ]
    missing = known.keys() - found.keys()
    removed = [LeaderChange(partition, None, observed_at_ms, is_deleted=True) for partition in missing]
    return sorted(changes + removed, key=lambda change: change.partition)
