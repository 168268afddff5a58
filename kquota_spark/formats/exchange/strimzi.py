"""Quotas in Strimzi's `KafkaUser` resources, a YAML document each; it can express only users by name.

The user is the resource's name. If it logs in with a certificate (`authentication.type` `tls` or `tls-external`), it is
`CN=` and that name. Resources of other kinds are skipped. For a `List` of kubectl, its items are read.

Every version is read. `v1` is written: Strimzi supports it since 0.49, and no other one from 1.0 on.

Source: Strimzi's `KafkaUserSpec`, `KafkaUserQuotas`, `KafkaUserModel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kquota_spark.formats.exchange.checks import Reading, checked_text, number_text, refuse, shown, writable
from kquota_spark.formats.exchange.documents import read_documents
from kquota_spark.model.quotas.entities import AnyEntity, Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey

_NAMED_USER_LEVEL = 3
_API = "kafka.strimzi.io/"
_CN = "CN="
_BY_CERTIFICATE = ("tls", "tls-external")
_FIELDS: Mapping[AnyKey, str] = {
    QuotaKey.PRODUCER_BYTE_RATE: "producerByteRate",
    QuotaKey.CONSUMER_BYTE_RATE: "consumerByteRate",
    QuotaKey.REQUEST_PERCENTAGE: "requestPercentage",
    QuotaKey.CONTROLLER_MUTATION_RATE: "controllerMutationRate",
}
_KEYS = {field: key.value for key, field in _FIELDS.items()}
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MOST_NAME_CHARACTERS = 253
_LARGEST_INT = 2**31 - 1
"""Maximum of the fields that are whole numbers: the operator reads them into an int, whatever the schema allows."""
_HEAD = """\
# Quotas of Kafka users. Into resources that you have already, take over spec.quotas alone: applied as it is, such a
# document replaces how its user logs in. strimzi.io/cluster is the name of your Kafka resource. Before Strimzi 0.49
# the version is v1beta2.
"""
_DOCUMENT = """\
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: "{name}"
  labels:
    strimzi.io/cluster: my-cluster
spec:
{authentication}  quotas:
{quotas}"""
_AUTHENTICATION = """\
  authentication:
    type: tls-external
"""


class _Metadata(msgspec.Struct):
    name: str


class _Authentication(msgspec.Struct):
    type: str


class _Spec(msgspec.Struct):
    authentication: _Authentication | None = None
    quotas: dict[str, float] | None = None


class _User(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


def read(text: str) -> QuotaSet:
    """The quotas of all `KafkaUser` resources of a text, YAML or JSON; ValueError with one line per problem."""
    reading = Reading()
    resources = list(_resources(read_documents(checked_text(text))))
    users = [(where, resource) for where, resource in resources if _is_user(where, resource, reading)]
    if resources and not users and all(isinstance(resource, dict) for _, resource in resources):
        reading.problem("documents", f"no KafkaUser of {_API}* among them")
    for where, resource in users:
        _read_user(where, resource, reading)
    return reading.quotas()


def _resources(documents: list[Any]) -> Iterator[tuple[str, Any]]:
    for number, document in enumerate(documents, start=1):
        where = f"document {number}"
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list) and document.get("kind") in ("List", "KafkaUserList"):
            yield from ((f"{where}: items[{index}]", item) for index, item in enumerate(items))
        else:
            yield where, document


def _is_user(where: str, resource: Any, reading: Reading) -> bool:
    if not isinstance(resource, dict):
        reading.problem(where, f"{shown(resource)}, expected a resource with apiVersion and kind")
        return False
    return resource.get("kind") == "KafkaUser" and str(resource.get("apiVersion")).startswith(_API)


def _read_user(where: str, resource: Any, reading: Reading) -> None:
    try:
        user = msgspec.convert(resource, _User)
    except msgspec.ValidationError as error:
        reading.problem(where, str(error))
        return
    spec = user.spec or _Spec()
    is_by_certificate = spec.authentication is not None and spec.authentication.type in _BY_CERTIFICATE
    name = f"{_CN}{user.metadata.name}" if is_by_certificate else user.metadata.name
    if _name_problem(user.metadata.name) is not None:
        reading.problem(f"{where}: metadata.name", f"{shown(user.metadata.name)} is no name of a resource")
        return
    entity = Entity(user=name)
    for field, value in (spec.quotas or {}).items():
        if field in _KEYS:
            reading.add(f"{where}: spec.quotas.{field}", entity, _KEYS[field], value)
        else:
            reading.problem(f"{where}: spec.quotas", f"{shown(field)}, expected one of {', '.join(_KEYS)}")


def write(quotas: QuotaSet) -> str:
    """A resource for each user; ValueError for other entities, and for users with names that no resource can have."""
    problems: list[str] = []
    documents: dict[str, str] = {}
    for entity, values in writable(quotas):
        user = str(entity.user) if isinstance(entity, Entity) else ""
        name = user.removeprefix(_CN)
        problem = _entity_problem(entity, values)
        if problem is None and name in documents:
            problem = f"{name} and {_CN}{name} would be one KafkaUser"
        if problem is not None:
            problems.append(f"{entity}: {problem}")
            continue
        documents[name] = _DOCUMENT.format(
            name=name,
            authentication=_AUTHENTICATION if user.startswith(_CN) else "",
            quotas="".join(f"    {_FIELDS[key]}: {number_text(value)}\n" for key, value in values.items()),
        )
    refuse(problems)
    return _HEAD + "".join(documents.values()) if documents else ""


def _entity_problem(entity: AnyEntity, values: Mapping[AnyKey, float]) -> str | None:
    if entity.level != _NAMED_USER_LEVEL or not isinstance(entity, Entity):
        return "a KafkaUser has quotas of one named user only"
    for key, value in values.items():
        if key not in _FIELDS:
            return f"{key.value}: a KafkaUser has no such quota"
        if key != QuotaKey.CONTROLLER_MUTATION_RATE and (value != int(value) or value > _LARGEST_INT):
            return (
                f"{key.value} {number_text(value)}: a KafkaUser takes whole numbers up to {_LARGEST_INT} only"
            )
    return _name_problem(str(entity.user).removeprefix(_CN))


def _name_problem(name: str) -> str | None:
    if _NAME.fullmatch(name) and len(name) <= _MOST_NAME_CHARACTERS:
        return None
    return "no name of a Kubernetes resource: lower-case letters, digits, - and . only"
