"""DescribeClientQuotas and AlterClientQuotas (KIP-546) by kafka-python's wire messages: it has no public call."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kquota_spark.config.own_clients import ADMIN
from kquota_spark.errors import UnreachableError, UserError
from kquota_spark.kafka.client_properties import python_options
from kquota_spark.kafka.clients import overheard, python_admin, python_errors, refused_login
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

_CLUSTER_AUTHORIZATION_FAILED = 31
_UPDATE_METADATA = 6
_UNSURE = (-1, 7, 13)
"""Codes of `org.apache.kafka.common.protocol.Errors`: UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION."""
_FOLLOWED_WITHIN_S, _PAUSE_S = 10.0, 0.01
_MATCH_EXACT, _MATCH_DEFAULT = 0, 1
_PARTS = {"user": "user", "client-id": "client_id"}
_KEYS: Mapping[str, AnyKey] = {key.value: key for key in (*QuotaKey, *IpQuotaKey)}


class Named(NamedTuple):
    """Names of the address and the login in errors, and the alternative for a cluster older than 2.6."""

    servers: str = "kafka.bootstrap_servers"
    login: str = "kafka.options"
    instead: str = "quotas.source: zookeeper"


OF_SETTINGS = Named()


class Refusal(NamedTuple):
    """Why a broker did not alter an entity."""

    words: str
    is_unsure: bool
    """The controller may have made the change nevertheless."""


class QuotaAdmin:
    """Reads and alters the quotas of one cluster, over a connection that is opened at the first query and kept.

    Args:
        bootstrap_servers: one or more brokers, `host:port,host:port`.
        properties: client properties for the login, see `client_properties`.
        timeout_ms: time limit for connecting, and again for each request.
        named: names for errors.

    Raises:
        UserError: the address or a property is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        *,
        timeout_ms: int,
        named: Named = OF_SETTINGS,
    ) -> None:
        servers = bootstrap_servers.split(",")
        if not all(map(str.strip, servers)):
            raise UserError(f"{named.servers}: {bootstrap_servers!r}, expected host:port,host:port")
        self._servers, self._timeout_ms, self._named = bootstrap_servers, timeout_ms, named
        self._login = properties
        self.where = f"Kafka {bootstrap_servers}"
        """The cluster for messages."""
        self._options = {
            "client_id": ADMIN,
            "bootstrap_timeout_ms": timeout_ms,
            "request_timeout_ms": timeout_ms,
            **python_options(properties),
        }
        self._client: Any = None
        self.has_zookeeper = False
        """Whether the quotas are in ZooKeeper; known from the first answer on."""

    def close(self) -> None:
        """Close the connection; the next query opens another one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def describe(self, entities: Iterable[AnyEntity] | None = None) -> list[tuple[AnyEntity, AnyKey, float]]:
        """The quotas in force now.

        Args:
            entities: only the quotas of these; None for all, with those of ips.

        Raises:
            UnreachableError: no broker answers in time, its answer is incomplete, or the right to read is missing.
            UserError: the brokers refuse the login, or are older than 2.6.
        """
        asked = [None] if entities is None else entities
        try:
            answers = self._ask([_description_of(entity) for entity in asked])
            for answer in answers:
                self._check(answer)
        except UserError:
            self.close()
            raise
        return [
            (entity, _KEYS[value.key], value.value)
            for answer in answers
            for entry in answer.entries
            if (entity := _entity(entry)) is not None
            for value in entry.values
            if value.key in _KEYS
        ]

    def quota_set(self, entities: Iterable[AnyEntity] | None = None) -> dict[AnyEntity, dict[AnyKey, float]]:
        """The quotas by entity; see `describe`."""
        found: dict[AnyEntity, dict[AnyKey, float]] = {}
        for entity, key, value in self.describe(entities):
            found.setdefault(entity, {})[key] = value
        return found

    def alter(
        self, entity: AnyEntity, values: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Refusal | None:
        """Set some quotas of one entity, and remove those with the value None; its other quotas stay.

        Args:
            entity: the entity to change.
            values: new values by Kafka's own keys.
            validate_only: only check that the cluster would accept the change.

        Returns:
            Why the broker refused; None if it made the change.

        Raises:
            UnreachableError: no answer; the change may have been made.
            UserError: the login is refused.
        """
        from kafka.errors import for_code
        from kafka.protocol.admin import AlterClientQuotasRequest

        changes = [(key, value or 0.0, value is None) for key, value in values.items()]
        entries = [(_named_parts(entity), changes)]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        try:
            [answer] = self._ask([request])
            [entry] = answer.entries
        except UserError:
            self.close()
            raise
        except ValueError as error:
            raise UnreachableError(
                f"{self.where} did not say what became of {entity}: see the broker's log"
            ) from error
        if not entry.error_code:
            return None
        words = entry.error_message or str(for_code(entry.error_code).__name__)
        if entry.error_code == _CLUSTER_AUTHORIZATION_FAILED:
            words = f"grant AlterConfigs on the cluster to the user of {self._named.login}"
        return Refusal(words, entry.error_code in _UNSURE)

    def wait_for(self, entity: AnyEntity, values: Mapping[AnyKey, float | None]) -> None:
        """Wait up to ten seconds until a broker reports the altered quotas, so that the next query sees them.

        A KRaft broker is some milliseconds behind its controller, on a busy machine some seconds.
        """
        until_s = time.monotonic() + _FOLLOWED_WITHIN_S
        while time.monotonic() < until_s:
            try:
                found = {key: value for _, key, value in self.describe([entity])}
            except UserError:
                return  # the change was made, and the next query will raise this error
            if all(found.get(key) == value for key, value in values.items()):
                return
            time.sleep(_PAUSE_S)

    def _check(self, answer: Any) -> None:
        if answer.error_code == _CLUSTER_AUTHORIZATION_FAILED:
            # Unreachable, as for brokers: a missing right may come back, and callers continue with earlier quotas.
            raise UnreachableError(
                f"{self.where} does not let us see the quotas: grant DescribeConfigs on the cluster "
                f"to the user of {self._named.login}"
            )
        if answer.error_code or answer.entries is None:
            # Null entries come only with an error. Without one they must not count as "no quotas" either.
            raise UnreachableError(
                f"{self.where} did not describe the quotas: error {answer.error_code} "
                f"({answer.error_message}), see the broker's log"
            )

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        """The answers to requests, in their order."""
        from kafka.errors import SaslAuthenticationFailedError

        with (
            overheard(SaslAuthenticationFailedError) as heard,
            python_errors(lambda error: self._unanswered(error, heard), ValueError),
        ):
            client = self._connected()
            return [client._manager.run(client._manager.send, request) for request in requests]

    def _unanswered(self, error: Exception, heard: Sequence[Exception]) -> UserError:
        from kafka.errors import IncompatibleBrokerVersion, SaslAuthenticationFailedError

        if isinstance(error, SaslAuthenticationFailedError):
            return refused_login(self._servers, self._login, self._named.login)
        if isinstance(error, IncompatibleBrokerVersion):
            return UserError(
                f"{self.where} is older than 2.6 and has no calls for quotas: use {self._named.instead}"
            )
        if isinstance(error, ValueError):
            return UserError(
                f"{self._named.servers}: {self._servers!r}: {error}, expected host:port,host:port"
            )
        reason = str((heard or [error])[-1]).partition("\n")[0][:200]
        return UnreachableError(
            f"{self.where} did not answer within {self._timeout_ms / 1_000:g} s: check "
            f"{self._named.servers} and {self._named.login} ({reason})"
        )

    def _connected(self) -> Any:
        if self._client is None:
            self._client = python_admin(self._servers, self._login, **self._options)
            versions = self._client._manager.broker_version_data
            # Only brokers with ZooKeeper offer this request between brokers.
            self.has_zookeeper = _UPDATE_METADATA in (versions.api_versions or {})
        return self._client


def _description_of(entity: AnyEntity | None) -> Any:
    """A request for the quotas of one entity, or of all for None."""
    from kafka.protocol.admin.client_quotas import DescribeClientQuotasRequest

    component = DescribeClientQuotasRequest.ComponentData
    parts = [] if entity is None else _named_parts(entity)
    components = [
        component(entity_type=kind, match_type=_MATCH_DEFAULT if name is None else _MATCH_EXACT, match=name)
        for kind, name in parts
    ]
    return DescribeClientQuotasRequest(components=components, strict=entity is not None)


def _named_parts(entity: AnyEntity) -> list[tuple[str, str | None]]:
    """The parts of an entity as AlterClientQuotas names them; no name is the default."""
    if isinstance(entity, IpEntity):
        parts: Mapping[str, Name] = {"ip": entity.ip}
    else:
        parts = {kind: getattr(entity, field) for kind, field in _PARTS.items()}
    return [
        (kind, None if name is DEFAULT else str(name)) for kind, name in parts.items() if name is not None
    ]


def _entity(entry: Any) -> AnyEntity | None:
    parts: dict[str, Name] = {}
    for part in entry.entity:
        if part.entity_type == "ip":
            if part.entity_name == "":
                return None  # a default that a migration mangled (KAFKA-16411): no address
            return IpEntity(DEFAULT if part.entity_name is None else part.entity_name)
        if part.entity_type not in _PARTS:
            return None
        parts[_PARTS[part.entity_type]] = DEFAULT if part.entity_name is None else part.entity_name
    return Entity(**parts)
