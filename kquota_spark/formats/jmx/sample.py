"""One MBean of a broker at one time, and the parts that the messages of all collectors share.

Absent, null, "NaN" and NaN all mean that the sensor has no value. They become None, never zero.
Source: Kafka's `ClientQuotaManager`, `ControllerMutationQuotaManager`, `SocketServer` (sensors and their tags).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.model.quotas.mbean_names import MBeanName, tagged_bucket
from kquota_spark.model.quotas.quota_types import CONNECTION, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS

SOCKET_SERVER = "socket-server-metrics"
QUOTA_TYPES = {
    "Produce": QuotaType.PRODUCE.value,
    "Fetch": QuotaType.FETCH.value,
    "Request": QuotaType.REQUEST.value,
    "ControllerMutation": QuotaType.CONTROLLER_MUTATION.value,
    SOCKET_SERVER: CONNECTION,
}
"""Quota types by the type property of an MBean."""
_REPLICATION = ("LeaderReplication", "FollowerReplication", "AlterLogDirsReplication")
MBEAN_TYPES = {name.lower(): name for name in (*QUOTA_TYPES, *_REPLICATION)}
"""Types that are kept, by their name in lower case."""
_ATTRIBUTES = {
    "byterate": "byte_rate",
    "throttletime": "throttle_time_ms",
    "requesttime": "request_time_percent",
    "exemptrequesttime": "exempt_request_time_percent",
    "tokens": "tokens",
    "mutationrate": "mutation_rate",
    "connectionacceptrate": "connection_rate",
    "brokerconnectionacceptrate": "connection_rate",
    "connectionacceptthrottletime": "throttle_time_ms",
    "queuesize": "queue_size",
}
_CONNECTION_TAGS = {"ip", "listener"}
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]")
_URL = re.compile(r"(?:\w+://)?((?:\[[^\]]*\]|[^/:\[\]]+)(?::\d+)?)(?:/.*)?")
_BROKER_ID = re.compile(r"\d{1,9}")
_MOST_CONNECTIONS = 2**31
_NO_NUMBER = {"", "null"}


class JmxSample(NamedTuple):
    """The columns of `jmx_samples` that come from a message, in the table's units."""

    broker_id: int
    sample_time_ms: int
    mbean_type: str
    quota_type: str | None
    bucket_user: str
    bucket_client_id: str
    bucket_tags: str | None = None
    ip: str | None = None
    listener: str | None = None
    byte_rate: float | None = None
    throttle_time_ms: float | None = None
    request_time_percent: float | None = None
    exempt_request_time_percent: float | None = None
    tokens: float | None = None
    mutation_rate: float | None = None
    connection_rate: float | None = None
    queue_size: int | None = None


class Origin(NamedTuple):
    """Facts about a message besides its value.

    Attributes:
        broker_id: from the message's header or key; None without one.
        brokers: broker ids by the addresses of their agents, see `addresses`.
        types: MBean types by metric name, for names from which the type does not follow.
    """

    broker_id: int | None = None
    brokers: Mapping[str, int] = {}
    types: Mapping[str, str] = {}


def addresses(text: str) -> tuple[str, ...]:
    """The forms in which collectors write an address: unchanged, host and port, host."""
    found = _URL.fullmatch(text.strip().rstrip("/"))
    if found is None:
        return (text.strip(),)
    return text.strip().rstrip("/"), found[1], re.sub(r":\d+\Z", "", found[1])


def broker_of(reported: Iterable[object], places: Iterable[object], origin: Origin) -> int:
    """The broker's id: from the message, else from its header or key, else from the agent's address.

    Raises:
        Unreadable: none of them gives an id.
    """
    for value in reported:
        if isinstance(value, int | str) and _BROKER_ID.fullmatch(str(value)):
            return int(value)
    if origin.broker_id is not None:
        return origin.broker_id
    known = [place for place in places if isinstance(place, str) and place]
    for place in known:
        for form in addresses(place):
            if form in origin.brokers:
                return origin.brokers[form]
    raise Unreadable(
        "no broker id: expected a tag broker or broker_id, a header broker_id, a numeric key, or an address "
        "of collect.jmx.brokers"
    )


def tag_of(tags: Mapping[str, object], *names: str) -> Iterator[object]:
    """Values of the tags with these names in any spelling: `broker_id`, `broker.id`, `brokerId`."""
    for key, value in tags.items():
        if plain(key) in names:
            yield value


def plain(name: str) -> str:
    """A name reduced to lower-case letters and digits, so that its spellings are equal."""
    return _NOT_IN_A_NAME.sub("", name.lower())


def attributes_of(values: Mapping[str, object]) -> dict[str, float | None]:
    """The attributes that are kept, by column; a prefix with a dot is ignored. Unreadable if one is not a number."""
    found: dict[str, float | None] = {}
    for key, value in values.items():
        column = _ATTRIBUTES.get(plain(key.rpartition(".")[2]))
        if column is not None:
            found[column] = number(value, column)
    return found


def number(value: object, name: str) -> float | None:
    """The value of an attribute; None if the sensor has none; raises Unreadable if it is not a number."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NO_NUMBER):
        return None
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            found = float(value)
            return found if math.isfinite(found) else None
    except (ValueError, OverflowError):
        pass
    raise Unreadable(f"{name} is no number")


def epoch_ms(value: object) -> int:
    """Epoch ms of an ISO text, or of a number in s, ms, us or ns, distinguished by its magnitude.

    Raises:
        Unreadable: it is neither, or a time before 1970 or after 9999.
    """
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            time_ms = round(moment.timestamp() * 1_000)
        else:
            time_ms = _scaled(value)
    except (ValueError, OverflowError, TypeError):
        raise Unreadable("its time is neither a number nor an ISO text") from None
    if not BEGINNING_MS <= time_ms <= END_MS:
        raise Unreadable("a time before 1970 or after 9999")
    return time_ms


def _scaled(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    # Seconds up to the year 5138, milliseconds from 1973 on, and so forth: for times of today they never overlap.
    if abs(value) < 1e11:
        return round(value * 1_000)
    if abs(value) < 1e14:
        return round(value)
    return round(value) // (1_000 if abs(value) < 1e17 else 1_000_000)


def _size(value: float | None) -> int | None:
    if value is None:
        return None
    if not 0 <= value < _MOST_CONNECTIONS:
        raise Unreadable("queue_size is no number of connections")
    return int(value)


def sample_of(
    broker_id: int, time_ms: int, name: MBeanName, attributes: Mapping[str, float | None]
) -> JmxSample | None:
    """The sample of an MBean; None for one without quotas.

    Args:
        broker_id: id of the MBean's broker.
        time_ms: time of the sample, epoch ms.
        name: name of the MBean.
        attributes: values by column of `jmx_samples`, in Kafka's units; None if there is no number.

    Raises:
        Unreadable: the user is not a sanitised name, or the queue size is not a number of connections.
    """
    mbean_type = MBEAN_TYPES.get(name.type.lower())
    if mbean_type is None or not attributes:
        return None
    values: dict[str, object] = dict(attributes)
    if "queue_size" in values:
        values["queue_size"] = _size(attributes["queue_size"])
    quota_type = QUOTA_TYPES.get(mbean_type)
    place = broker_id, time_ms, mbean_type, quota_type
    if mbean_type == SOCKET_SERVER:
        if not name.tags.keys() <= _CONNECTION_TAGS:
            return None
        return JmxSample(*place, "", "", **{**name.tags, **values})  # type: ignore[arg-type]
    try:
        bucket = tagged_bucket(name.tags)
    except ValueError:
        raise Unreadable("the user of the MBean is no sanitised name") from None
    custom = None if bucket else json.dumps(dict(sorted(name.tags.items())), ensure_ascii=False)
    bucket = bucket or Bucket("", "")
    return JmxSample(*place, bucket.user, bucket.client_id, custom, **values)  # type: ignore[arg-type]
