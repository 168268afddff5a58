"""What Telegraf, Metricbeat and jmxtrans write of a broker's MBeans.

Telegraf (`inputs.jolokia2_agent` in its JSON form, one metric or a batch in a message): name and tags are the
operator's choice. The MBean's type is that of a tag `type`, else it follows from the fields, else from the words of the
name (`kafka_quota_produce`), else from the setting `collect.jmx.types`.
Source: Telegraf's `plugins/serializers/json`, and messages of Telegraf 1.37.2 (tests/data/jmx-telegraf).

Metricbeat (metricset `jolokia/jmx`): values are below `jolokia.<namespace>`, named by the operator. Only events of a
mapping with a wildcard carry the MBean's name, and without it nobody knows whose values they are.
Source: Elastic's `metricbeat/module/jolokia/jmx/data.go` and `_meta/data.json`.

jmxtrans (Kafka writer): one attribute of one MBean a message, or a few in older releases. The default form cleans the
MBean's name for its dotted `keyspace`, so that no client id can be read out of it: it needs `resultTags: [typeName,
attributeName]`. The detailed form has everything.
Source: jmxtrans' `model.output.kafka.DefaultResultSerializer` and `DetailedResultSerializer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

Field = float | str | bool | None
_BY_FIELD = {
    "request_time_percent": "Request",
    "exempt_request_time_percent": "Request",
    "tokens": "ControllerMutation",
    "mutation_rate": "ControllerMutation",
    "connection_rate": SOCKET_SERVER,
}
# In this order: a name may hold several of the words.
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


class Metric(msgspec.Struct):
    """A metric of Telegraf."""

    name: str
    fields: dict[str, Field]
    timestamp: int | float | str
    tags: dict[str, str] = {}


def telegraf_sample(metric: Metric, origin: Origin) -> JmxSample | None:
    """The sample of a metric; None for one that has nothing to do with quotas, Unreadable with the reason."""
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
    """The tags of the MBean among those of the metric. Telegraf takes names apart at commas, quoted or not."""
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
    """An event of Metricbeat, as far as it matters."""

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
    told = [value for place in (event.labels, event.fields) for value in tag_of(place, "brokerid", "broker")]
    host = event.host.get("name") if isinstance(event.host, dict) else event.host
    places = [event.service.address if event.service else None, host]
    return sample_of(broker_of(told, places, origin), epoch_ms(event.time), name, attributes)


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Values by their dotted path: a field's name may have dots, which nest."""
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
    """`prefix.broker1_example_net_9999.alias.attribute`: parts with the dots of a host made into underscores."""
    return [part.rpartition("_")[0].replace("_", ".") for part in keyspace.split(".") if "_" in part]
