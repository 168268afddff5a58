"""DescribeClientQuotas (KIP-546) through kafka-python's wire messages, for which it has no public call."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kquota_spark.errors import UserError
from kquota_spark.io.client_properties import python_options
from kquota_spark.model.entities import DEFAULT, Entity, Name
from kquota_spark.model.quota_types import QuotaKey

_CLIENT_ID = "kquota"
_BOOTSTRAP_LOG = "kafka.net.manager"
_CLUSTER_AUTHORIZATION_FAILED = 31
_MATCH_EXACT, _MATCH_DEFAULT = 0, 1
_Filter = list[tuple[str, int, str | None]]
_PARTS = {"user": "user", "client-id": "client_id"}
_KEYS = {key.value: key for key in QuotaKey}


def described_quotas(
    bootstrap_servers: str,
    properties: Mapping[str, str],
    entities: Iterable[Entity] | None = None,
    *,
    timeout_ms: int,
) -> list[tuple[Entity, QuotaKey, float]]:
    """The quotas of users and client ids that are in force now; those of ips are left out.

    Args:
        bootstrap_servers: one or more brokers, `host:port,host:port`.
        properties: client properties for the login, see `client_properties`.
        entities: only theirs; None for all.
        timeout_ms: limit of connecting, and again of the request.

    Raises:
        UserError: no broker answers in time, or it refuses us.
    """
    servers = bootstrap_servers.split(",")
    if not all(map(str.strip, servers)):
        raise UserError(f"--bootstrap-server: {bootstrap_servers!r}, expected host:port,host:port")
    options = {
        "client_id": _CLIENT_ID,
        "bootstrap_timeout_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
        **python_options(properties),
        "bootstrap_servers": servers,
    }
    filters = [([], False)] if entities is None else [(_filter(entity), True) for entity in entities]
    answers = _ask(bootstrap_servers, options, filters, timeout_ms)
    for answer in answers:
        _check(bootstrap_servers, answer)
    return [
        (entity, _KEYS[value.key], value.value)
        for answer in answers
        for entry in answer.entries or ()
        if (entity := _entity(entry)) is not None
        for value in entry.values
        if value.key in _KEYS
    ]


def _check(bootstrap_servers: str, answer: Any) -> None:
    if answer.error_code == _CLUSTER_AUTHORIZATION_FAILED:
        raise UserError(
            f"Kafka {bootstrap_servers} does not let us see the quotas: grant DescribeConfigs on the cluster "
            "to the user of --command-config"
        )
    if answer.error_code:
        raise UserError(
            f"Kafka {bootstrap_servers} refused to describe the quotas: error {answer.error_code} "
            f"({answer.error_message}), see the broker's log"
        )


def _filter(entity: Entity) -> _Filter:
    """The parts of an entity as DescribeClientQuotas matches them."""
    parts = (("user", entity.user), ("client-id", entity.client_id))
    return [
        (kind, _MATCH_DEFAULT, None) if name is DEFAULT else (kind, _MATCH_EXACT, str(name))
        for kind, name in parts
        if name is not None
    ]


def _ask(
    bootstrap_servers: str,
    options: Mapping[str, Any],
    filters: Sequence[tuple[_Filter, bool]],
    timeout_ms: int,
) -> list[Any]:
    """The answers to filters, each with whether it is strict; one that is empty and not strict gets everything."""
    from kafka.admin import KafkaAdminClient
    from kafka.errors import IncompatibleBrokerVersion, KafkaError, SaslAuthenticationFailedError
    from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest

    where = f"Kafka {bootstrap_servers}"
    with _overheard(SaslAuthenticationFailedError) as heard:
        try:
            client = KafkaAdminClient(**options)
            try:
                component = DescribeClientQuotasRequest.ComponentData
                requests = [
                    DescribeClientQuotasRequest(
                        components=[component(entity_type=k, match_type=t, match=m) for k, t, m in parts],
                        strict=is_strict,
                    )
                    for parts, is_strict in filters
                ]
                return [client._manager.run(client._manager.send, request) for request in requests]
            finally:
                client.close()
        except SaslAuthenticationFailedError as error:
            raise UserError(f"{where} refused the login: check --command-config") from error
        except IncompatibleBrokerVersion as error:
            raise UserError(
                f"{where} is older than 2.6 and cannot describe quotas: use --zookeeper"
            ) from error
        except ValueError as error:
            raise UserError(
                f"--bootstrap-server: {bootstrap_servers!r}: {error}, expected host:port,host:port"
            ) from error
        except (KafkaError, OSError) as error:
            reason = str((heard or [error])[-1]).partition("\n")[0][:200]
            raise UserError(
                f"{where} did not answer within {timeout_ms / 1_000:g} s: check --bootstrap-server and "
                f"--command-config ({reason})"
            ) from error


@contextmanager
def _overheard(final: type[Exception]) -> Iterator[list[Exception]]:
    """The errors that kafka-python only logs, oldest first, but for time limits; its log itself is kept quiet.

    It repeats itself, shows the password at DEBUG, and tries a refused login again until the time is up, which
    may lock the account: an error of the type `final` is raised inside it, from its own log line.
    """
    heard: list[Exception] = []

    def hear(record: logging.LogRecord) -> bool:
        found = [part for part in record.args or () if isinstance(part, Exception)]
        heard.extend(error for error in found if type(error).__name__ != "KafkaTimeoutError")
        if found and isinstance(found[0], final) and record.name == _BOOTSTRAP_LOG:
            raise found[0]
        return False

    handler = logging.Handler(logging.WARNING)
    handler.addFilter(hear)
    logger = logging.getLogger("kafka")
    before = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def _entity(entry: Any) -> Entity | None:
    parts: dict[str, Name] = {}
    for part in entry.entity:
        if part.entity_type not in _PARTS:
            return None
        parts[_PARTS[part.entity_type]] = DEFAULT if part.entity_name is None else part.entity_name
    return Entity(**parts)
