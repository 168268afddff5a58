"""The messages of Telegraf, Metricbeat, jmxtrans and our own collector about a broker's MBeans.

Telegraf (`inputs.jolokia2_agent` in its JSON form, one metric or a batch in a message): name and tags are the
operator's choice. The MBean's type comes from the setting `collect.jmx.types`, else from a tag `type`, else from the
fields, else from the words of the name (`kafka_quota_produce`).
Source: Telegraf's `plugins/serializers/json`, and messages of Telegraf 1.37.2 (tests/data/jmx-telegraf).

Metricbeat (metricset `jolokia/jmx`): values are below `jolokia.<namespace>`, named by the operator. Only events of a
mapping with a wildcard contain the MBean's name, and without it the values cannot be assigned to a client.
Source: Elastic's `metricbeat/module/jolokia/jmx/data.go` and `_meta/data.json`.

jmxtrans (Kafka writer): one attribute of one MBean per message, or a few in older releases. The default form cleans the
MBean's name for its dotted `keyspace`, so that no client id can be read from it. It therefore needs `resultTags:
[typeName, attributeName]`. The detailed form has all fields.
Source: jmxtrans' `model.output.kafka.DefaultResultSerializer` and `DetailedResultSerializer`.

`kquota collect jmx` sends Jolokia's answers to a read request, with the broker's id and the time. Unchanged answers
from Jolokia are read too. Their time is in seconds, and the broker's id must be the message's key or a header.
Source: Jolokia's protocol, and answers of Jolokia 2.1.2 on brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from kquota_spark.formats.jmx.sample import (
    MBEAN_TYPES,
    SOCKET_SERVER,
    JmxSample,
    Origin,
    attributes_of,
    broker_of,
    epoch_ms,
    plain,
    sample_of,
    tag_of,
)
from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.model.quotas.mbean_names import (
    CLIENT_ID_TAG,
    DOMAIN,
    USER_TAG,
    MBeanName,
    parse_mbean_name,
    unquoted,
)
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS

Field = float | str | bool | None
_BY_FIELD = {
    "request_time_percent": "Request",
    "exempt_request_time_percent": "Request",
    "tokens": "ControllerMutation",
    "mutation_rate": "ControllerMutation",
    "connection_rate": SOCKET_SERVER,
}
# In this order: a name may contain several of the words.
_BY_WORD = {
    "leaderreplication": "LeaderReplication",
    "followerreplication": "FollowerReplication",
    "alterlogdirs": "AlterLogDirsReplication",
    "mutation": "ControllerMutation",
    "produce": "Produce",
    "fetch": "Fetch",
    "consume": "Fetch",
    "request": "Request",
}
_OF_BUCKETS = {USER_TAG: USER_TAG, "clientid": CLIENT_ID_TAG, "ip": "ip", "listener": "listener"}
MBEANS_IN_A_MESSAGE = 500
"""Maximum MBeans per message. At about 150 bytes each, a message stays far below its limit of 1 MB."""
_NO_SUCH_MBEAN = 404


class Metric(msgspec.Struct):
    """A metric of Telegraf."""

    name: str
    fields: dict[str, Field]
    timestamp: int | float | str
    tags: dict[str, str] = {}


def telegraf_sample(metric: Metric, origin: Origin) -> JmxSample | None:
    """The sample of a metric; None for one that has nothing to do with quotas; raises Unreadable with the reason."""
    attributes = attributes_of(metric.fields)
    mbean_type = _type_of(metric, attributes, origin) if attributes else None
    if mbean_type is None:
        return None
    tags = _tags_of(metric, mbean_type)
    broker_id = broker_of(
        tag_of(metric.tags, "brokerid", "broker", "nodeid"),
        [*tag_of(metric.tags, "jolokiaagenturl"), *tag_of(metric.tags, "host")],
        origin,
    )
    return sample_of(broker_id, epoch_ms(metric.timestamp), MBeanName(DOMAIN, mbean_type, tags), attributes)


def _type_of(metric: Metric, attributes: Mapping[str, Any], origin: Origin) -> str | None:
    given = origin.types.get(metric.name) or metric.tags.get("type", "")
    if given.lower() in MBEAN_TYPES:
        return MBEAN_TYPES[given.lower()]
    for column in attributes:
        if column in _BY_FIELD:
            return _BY_FIELD[column]
    name = plain(metric.name)
    for word, mbean_type in _BY_WORD.items():
        if word in name:
            return mbean_type
    if "byte_rate" in attributes:
        raise Unreadable("a byte-rate of produce or of fetch? give it a tag type, or set collect.jmx.types")
    return None


def _tags_of(metric: Metric, mbean_type: str) -> dict[str, str]:
    """The tags of the MBean among those of the metric. Telegraf splits names at commas, quoted or not."""
    wanted = {"ip", "listener"} if mbean_type == SOCKET_SERVER else {USER_TAG, CLIENT_ID_TAG}
    found = {}
    for key, value in metric.tags.items():
        name = _OF_BUCKETS.get(plain(key))
        if name in wanted:
            try:
                found[name] = unquoted(value)
            except ValueError:
                raise Unreadable(f"the tag {name} was cut at a comma by the collector") from None
    return found


class _Service(msgspec.Struct):
    address: str | None = None


class Event(msgspec.Struct, rename={"time": "@timestamp"}):
    """An event of Metricbeat, with the fields that are used here."""

    time: str
    jolokia: dict[str, Any]
    service: _Service | None = None
    fields: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    host: Any = None


def metricbeat_sample(event: Event, origin: Origin) -> JmxSample | None:
    """The sample of an event; see `telegraf_sample`."""
    values = dict(_leaves(event.jolokia))
    attributes = attributes_of({key: value for key, value in values.items() if not key.endswith(".mbean")})
    names = [value for key, value in values.items() if key.endswith(".mbean")]
    if not attributes:
        return None
    if len(names) != 1 or not isinstance(names[0], str):
        raise Unreadable("no name of one MBean: map it with a wildcard, e.g. kafka.server:type=Produce,*")
    try:
        name = parse_mbean_name(names[0])
    except ValueError:
        raise Unreadable("its mbean is no MBean name") from None
    if name.domain != DOMAIN:
        return None
    reported = [
        value for place in (event.labels, event.fields) for value in tag_of(place, "brokerid", "broker")
    ]
    host = event.host.get("name") if isinstance(event.host, dict) else event.host
    places = [event.service.address if event.service else None, host]
    return sample_of(broker_of(reported, places, origin), epoch_ms(event.time), name, attributes)


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Values by their dotted path: Metricbeat nests a field by the dots in its name."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


class DefaultResult(msgspec.Struct):
    """The default form of jmxtrans."""

    keyspace: str
    value: str
    timestamp: int
    tags: dict[str, str] = {}


class DetailedResult(msgspec.Struct, rename="camel"):
    """The detailed form of jmxtrans: `value` of a single attribute, or `values` of several."""

    attribute_name: str
    obj_domain: str
    type_name: str
    epoch: int
    host: str | None = None
    alias: str | None = None
    source: str | None = None
    value: Any = None
    value_name: str | None = None
    values: dict[str, Any] = {}


def default_sample(result: DefaultResult, origin: Origin) -> JmxSample | None:
    """The sample of a result; see `telegraf_sample`."""
    attribute = result.tags.get("attributeName") or result.keyspace.rpartition(".")[2]
    attributes = attributes_of({attribute: result.value})
    if not attributes or result.tags.get("objDomain", DOMAIN) != DOMAIN:
        return None
    type_name = result.tags.get("typeName")
    if type_name is None:
        raise Unreadable("no MBean name in it: set resultTags to typeName and attributeName in jmxtrans")
    broker_id = broker_of(tag_of(result.tags, "brokerid", "broker"), _hosts(result.keyspace), origin)
    return _of_result(broker_id, result.timestamp, type_name, attributes)


def detailed_sample(result: DetailedResult, origin: Origin) -> JmxSample | None:
    """The sample of a result; see `telegraf_sample`."""
    attributes = attributes_of(result.values or {result.value_name or result.attribute_name: result.value})
    if not attributes or result.obj_domain != DOMAIN:
        return None
    broker_id = broker_of([result.alias], [result.alias, result.host, result.source], origin)
    return _of_result(broker_id, result.epoch, result.type_name, attributes)


def _of_result(
    broker_id: int, time: int, type_name: str, attributes: dict[str, float | None]
) -> JmxSample | None:
    try:
        name = parse_mbean_name(f"{DOMAIN}:{type_name}")
    except ValueError:
        raise Unreadable("its typeName is no list of MBean properties") from None
    return sample_of(broker_id, epoch_ms(time), name, attributes)


def _hosts(keyspace: str) -> list[str]:
    """Hosts in a keyspace: `prefix.broker1_example_net_9999.alias.attribute` has underscores for a host's dots."""
    return [part.rpartition("_")[0].replace("_", ".") for part in keyspace.split(".") if "_" in part]


class _Read(msgspec.Struct):
    mbean: str
    type: str = "read"
    attribute: Any = None


class Answer(msgspec.Struct):
    """An answer of Jolokia; our collector adds `broker_id` and `time_ms`."""

    request: _Read
    status: int
    value: Any = None
    timestamp: int | float | None = None
    error: str | None = None
    broker_id: int | None = None
    time_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)] | None = None


def jolokia_samples(answer: Answer, origin: Origin) -> Iterator[JmxSample | Unreadable]:
    """The samples of an answer, or why one cannot be read; raises Unreadable if the whole answer cannot be read."""
    if answer.status == _NO_SUCH_MBEAN:
        return
    if answer.status != 200:
        raise Unreadable(f"Jolokia answered with status {answer.status}")
    broker_id = broker_of([answer.broker_id], (), origin)
    time_ms = epoch_ms(answer.timestamp) if answer.time_ms is None else answer.time_ms
    for mbean, values in _by_mbean(answer):
        try:
            yield from _of_mbean(broker_id, time_ms, mbean, values)
        except Unreadable as reason:
            yield reason


def messages(
    answers: list[dict[str, Any]], broker_id: int, time_ms: int, *, of: int = MBEANS_IN_A_MESSAGE
) -> Iterator[bytes]:
    """The messages of our collector: one per answer, several for an answer with more MBeans than `of`.

    An answer "no such MBean" (404) is left out: a broker has no MBean before it measures.

    Args:
        answers: answers of Jolokia, one per request.
        broker_id: id of the broker that answered.
        time_ms: time of the query, epoch ms.
        of: maximum MBeans per message.
    """
    for answer in answers:
        if answer.get("status") == _NO_SUCH_MBEAN:
            continue
        value = answer.get("value")
        parts = [value]
        if isinstance(value, dict) and len(value) > of:
            items = list(value.items())
            parts = [dict(items[start : start + of]) for start in range(0, len(items), of)]
        for part in parts:
            kept = {key: answer[key] for key in ("request", "status", "error") if key in answer}
            yield msgspec.json.encode({"broker_id": broker_id, "time_ms": time_ms, **kept, "value": part})


def _by_mbean(answer: Answer) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Values by MBean. The answer to a pattern nests them by name; that to one attribute may be a bare value."""
    value = answer.value
    if isinstance(answer.request.attribute, str) and not isinstance(value, dict):
        value = {answer.request.attribute: value}
    if not isinstance(value, dict):
        raise Unreadable("its value is no mapping of attributes")
    if "*" not in answer.request.mbean and "?" not in answer.request.mbean:
        yield answer.request.mbean, value
        return
    for mbean, values in value.items():
        if not isinstance(values, dict):
            raise Unreadable("its value is no mapping of MBeans")
        yield mbean, values


def _of_mbean(broker_id: int, time_ms: int, mbean: str, values: Mapping[str, Any]) -> Iterator[JmxSample]:
    try:
        name = parse_mbean_name(mbean)
    except ValueError:
        raise Unreadable("a key of its value is no MBean name") from None
    if name.domain == DOMAIN:
        sample = sample_of(broker_id, time_ms, name, attributes_of(values))
        if sample is not None:
            yield sample
