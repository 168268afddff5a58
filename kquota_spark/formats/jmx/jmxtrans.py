"""Results that jmxtrans' Kafka writer sends, one attribute of one MBean a message (or a few, in older releases).

The default form cleans the MBean's name for its dotted `keyspace`, so that no client id can be read out of it: it
needs `resultTags: [typeName, attributeName]`. The detailed form has everything.
Source: jmxtrans' `model.output.kafka.DefaultResultSerializer` and `DetailedResultSerializer`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kquota_spark.formats.jmx.sample import (
    JmxSample,
    Origin,
    attributes_of,
    broker_of,
    epoch_ms,
    sample_of,
    tag_of,
)
from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.model.quotas.mbean_names import DOMAIN, parse_mbean_name


class DefaultResult(msgspec.Struct):
    """The default form."""

    keyspace: str
    value: str
    timestamp: int
    tags: dict[str, str] = {}


class DetailedResult(msgspec.Struct, rename="camel"):
    """The detailed form: `value` of a single attribute, or `values` of several."""

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
    """The sample of a result; None for one that has nothing to do with quotas.

    Raises:
        Unreadable: with the reason.
    """
    attribute = result.tags.get("attributeName") or result.keyspace.rpartition(".")[2]
    attributes = attributes_of({attribute: result.value})
    if not attributes or result.tags.get("objDomain", DOMAIN) != DOMAIN:
        return None
    type_name = result.tags.get("typeName")
    if type_name is None:
        raise Unreadable("no MBean name in it: set resultTags to typeName and attributeName in jmxtrans")
    broker_id = broker_of(tag_of(result.tags, "brokerid", "broker"), _hosts(result.keyspace), origin)
    return _sample(broker_id, result.timestamp, type_name, attributes)


def detailed_sample(result: DetailedResult, origin: Origin) -> JmxSample | None:
    """The sample of a result; see `default_sample`."""
    attributes = attributes_of(result.values or {result.value_name or result.attribute_name: result.value})
    if not attributes or result.obj_domain != DOMAIN:
        return None
    broker_id = broker_of([result.alias], [result.alias, result.host, result.source], origin)
    return _sample(broker_id, result.epoch, result.type_name, attributes)


def _sample(
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
