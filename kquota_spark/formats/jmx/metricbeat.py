"""Events of Metricbeat's metricset `jolokia/jmx`: values below `jolokia.<namespace>`, named by the operator.

Only events of a mapping with a wildcard carry the MBean's name, and without it nobody knows whose values they are.
Source: Elastic's `metricbeat/module/jolokia/jmx/data.go` and `_meta/data.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class Service(msgspec.Struct):
    """Whom Metricbeat asked."""

    address: str | None = None


class Event(msgspec.Struct, rename={"time": "@timestamp"}):
    """One event, as far as it matters."""

    time: str
    jolokia: dict[str, Any]
    service: Service | None = None
    fields: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    host: Any = None


def metricbeat_sample(event: Event, origin: Origin) -> JmxSample | None:
    """The sample of an event; None for one that has nothing to do with quotas.

    Raises:
        Unreadable: with the reason.
    """
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
