"""Writes quota nodes into ZooKeeper and reads what the watch makes of them in its tables, or why it does not start."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from deltalake import DeltaTable
from kazoo.client import KazooClient

from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.watch import Watcher
from tests.support.clusters.waiting import until


def payload(**config: Any) -> bytes:
    return json.dumps({"version": 1, "config": config}).encode()


def put(client: KazooClient, path: str, data: bytes | None) -> Any:
    """Write a node; its stat."""
    if client.exists(f"/config/{path}"):
        return client.set(f"/config/{path}", data)
    client.create(f"/config/{path}", data, makepath=True)
    return client.exists(f"/config/{path}")


def rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(f"{settings.tables}/{table}").to_pyarrow_table().to_pylist()
    return [
        {name: round(v.timestamp() * 1000) if hasattr(v, "timestamp") else v for name, v in row.items()}
        for row in found
    ]


def changes(settings: Settings) -> set[tuple[Any, ...]]:
    """(entity, key, value, previous value, time, version) of every edit."""
    names = ("entity", "key", "value", "previous_value", "changed_at", "version")
    return {tuple(row[name] for name in names) for row in rows(settings, "quota_changes") if row["key"]}


def problems(settings: Settings) -> dict[str, str]:
    return {row["entity"]: row["problem"] for row in rows(settings, "quota_changes") if row["problem"]}


def produce_rates(settings: Settings) -> dict[str, float | None]:
    """What the last period of each entity says."""
    last = [row for row in rows(settings, "quota_rules") if row["level"] and row["valid_to"] is None]
    return {row["entity"]: row["producer_byte_rate"] for row in last}


def known_through_ms(settings: Settings) -> int | None:
    [row] = [row for row in rows(settings, "quota_rules") if row["level"] == 0]
    known: int | None = row["known_through"]
    return known


def until_known(settings: Settings, time_ms: int) -> None:
    until(lambda: (known_through_ms(settings) or 0) >= time_ms)


def until_in_force(settings: Settings) -> None:
    """Until brokers act on the newest edit of the tables: 95 ms after it, with ZooKeeper."""
    newest_ms = max(row["valid_from"] for row in rows(settings, "quota_rules") if row["level"] != 0)
    until(lambda: now_ms() >= newest_ms)


def refusal(settings: Settings) -> UserError:
    """Why the watch does not start; a server that is slow to answer gets more time to say it."""
    for timeout_ms in (500, 5_000, 50_000):
        quotas = dataclasses.replace(settings.quotas, connect_timeout=Duration(timeout_ms))
        watcher = Watcher(dataclasses.replace(settings, quotas=quotas))
        try:
            watcher.start()
        except UnreachableError:
            continue
        except UserError as error:
            return error
        watcher.stop()
        raise AssertionError("it has started")
    raise AssertionError("nobody answered")
