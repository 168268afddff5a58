"""Metrics of Telegraf's `inputs.jolokia2_agent` in its JSON form, one or a batch in a message.

Name and tags are the operator's choice. The MBean's type is that of a tag `type`, else it follows from the fields,
else from the words of the name (`kafka_quota_produce`), else from the setting `collect.jmx.types`.
Source: Telegraf's `plugins/serializers/json`, and messages of Telegraf 1.37.2 (tests/data/jmx-telegraf).
"""

from __future__ import annotations

from collections.abc import Mapping
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
from kquota_spark.model.quotas.mbean_names import CLIENT_ID_TAG, DOMAIN, USER_TAG, MBeanName, unquoted

Field = float | str | bool | None


class Metric(msgspec.Struct):
    """One metric."""

    name: str
    fields: dict[str, Field]
    timestamp: int | float | str
    tags: dict[str, str] = {}


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


def telegraf_sample(metric: Metric, origin: Origin) -> JmxSample | None:
    """The sample of a metric; None for one that has nothing to do with quotas.

    Raises:
        Unreadable: with the reason.
    """
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
