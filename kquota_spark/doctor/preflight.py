"""The checks of `kquota doctor --before`, ahead of the first run: this machine, the stores, ZooKeeper, Kafka.

A server that does not answer is a finding. Every wait has a time limit, and all waits together take less than 30 s.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.doctor.store_trial import checkpoints_check, tables_check
from kquota_spark.errors import UserError
from kquota_spark.kafka.broker_checks import kafka_checks
from kquota_spark.kafka.log_messages import Place
from kquota_spark.kafka.log_topic_checks import Consumed
from kquota_spark.process.check import Check, fail, failed, java_check, ok, warn
from kquota_spark.process.extras import install_text
from kquota_spark.process.listeners import require_listener
from kquota_spark.store.reading import open_tables

_ZOOKEEPER_MOST_S = 8.0
_KAFKA_MOST_MS = 5_000
_JAVA_MOST_S = 5.0
_STORE_LIMITS = {"connect_timeout": "3s", "timeout": "5s", "max_retries": "1"}
"""Limits of an object store's waits, as names and values of deltalake."""
_CONSUMED = """
select topic, "partition", max(kafka_offset), max(kafka_timestamp_ms) from requests
where cluster_id = ? and topic is not null group by all
"""


def before_checks(settings: Settings, now_ms: int) -> Iterator[Check]:
    """All checks ahead of a run, each yielded when it is done."""
    yield java_check(_JAVA_MOST_S)
    yield _spark()
    steps: Sequence[tuple[str, Callable[[], list[Check]]]] = (
        ("tables", lambda: [_writable("tables", settings.tables) or tables_check(_soon(settings))]),
        (
            "checkpoints",
            lambda: [_writable("checkpoints", settings.checkpoints) or checkpoints_check(_soon(settings))],
        ),
        ("quota source", lambda: _quota_source(settings)),
        ("Kafka", lambda: kafka_checks(settings, _consumed(settings), now_ms)),
    )
    for what, step in steps:
        try:
            yield from step()
        except UserError as error:  # such as a password that is not set
            yield from (fail(what, line, "correct the settings") for line in str(error).splitlines())


def _spark() -> Check:
    # Found, not imported: an import takes a second, and nothing of pyspark is needed here.
    if importlib.util.find_spec("pyspark") is None:
        advice = f"where the audit runs: {install_text('spark')}"
        return warn("Spark", "pyspark is not installed here", advice)
    return ok("Spark", "pyspark is installed")


def _soon(settings: Settings) -> Settings:
    """The settings with short time limits of the object store, unless the settings contain limits of their own."""
    given = {name.lower() for name in settings.storage_options}
    limits = {name: value for name, value in _STORE_LIMITS.items() if name not in given}
    return settings.changed(storage_options={**settings.storage_options, **limits})


def _writable(key: str, root: str) -> Check | None:
    """Whether a folder of this machine can be written; None for an object store, which only a trial can test."""
    path = local_path(root)
    if path is None:
        return None
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(key, f"{root} can be written")
    return fail(key, f"{root}: {there} cannot be written", f"change its owner, or {key}: in the settings")


def _quota_source(settings: Settings) -> list[Check]:
    if settings.quotas.source == "zookeeper":
        return _zookeeper(settings)
    if settings.quotas.source == "admin":
        return _described_quotas(settings)
    path = Path(settings.quotas.file)
    if path.is_file():
        return [ok("quota file", f"{path} is there")]
    return [fail("quota file", f"{settings.quotas.file!r} is no file", "check quotas.file")]


def _described_quotas(settings: Settings) -> list[Check]:
    from kquota_spark.quotas.sources import from_admin

    kafka, timeout_ms = settings.kafka, min(settings.quotas.connect_timeout, _KAFKA_MOST_MS)
    try:
        found = from_admin(kafka.bootstrap_servers, kafka.options, timeout_ms=timeout_ms)
    except UserError as error:
        return [failed("described quotas", error)]
    return [ok("described quotas", f"{found.origin} describes quotas of {len(found.book):,} entities")]


def _zookeeper(settings: Settings) -> list[Check]:
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from kquota_spark.zookeeper.client import tls_problem, zookeeper_client

    where = settings.quotas.zookeeper_connect
    timeout_s = min(settings.quotas.connect_timeout / 1_000, _ZOOKEEPER_MOST_S)
    client = zookeeper_client(settings.quotas)
    try:
        require_listener("ZooKeeper", where, "quotas.zookeeper_connect")
    except UserError as error:
        return [failed("ZooKeeper", error)]
    try:
        client.start(timeout=timeout_s)
        nodes = [_node(client, path) for path in ("/config", "/config/users")]
        return [ok("ZooKeeper", f"{where} answers"), *nodes]
    except KazooTimeoutError:
        evidence = tls_problem(settings.quotas) or f"{where} does not answer within {timeout_s:.0f} s"
        return [fail("ZooKeeper", evidence, "check quotas.zookeeper_connect, and that ZooKeeper runs")]
    except (KazooException, OSError, ValueError) as error:
        evidence = f"{where}: {type(error).__name__}"
        return [fail("ZooKeeper", evidence, "check quotas.zookeeper_connect (host:port,host:port/chroot)")]
    finally:
        client.stop()
        client.close()


def _node(client: Any, path: str) -> Check:
    from kazoo.exceptions import NoAuthError, NoNodeError

    try:
        names = client.get_children(path)
    except NoNodeError:
        advice = "Kafka makes it at its first start: is the chroot in quotas.zookeeper_connect Kafka's own?"
        return fail("quota nodes", f"{path} does not exist", advice)
    except NoAuthError:
        return fail("quota nodes", f"{path} may not be read", "give the watcher read access (ACL)")
    return ok("quota nodes", f"{path} can be read, {len(names):,} children")


def _consumed(settings: Settings) -> dict[Place, Consumed] | None:
    """The last offset and time that ingest has read of each partition; None if it has never run."""
    try:
        with open_tables(settings, "requests") as tables:
            found = tables.query(_CONSUMED, [settings.cluster_id]).rows
    except UserError:
        return None
    return {(topic, number): Consumed(offset, time_ms) for topic, number, offset, time_ms in found}
