"""Converts a message of any collector to samples. A collector is recognised by fields that only it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kquota_spark.formats.jmx.collectors import (
    Answer,
    DefaultResult,
    DetailedResult,
    Event,
    Metric,
    default_sample,
    detailed_sample,
    jolokia_samples,
    metricbeat_sample,
    telegraf_sample,
)
from kquota_spark.formats.jmx.sample import JmxSample, Origin
from kquota_spark.formats.request_log.request import Unreadable

MAX_MESSAGE_BYTES = 16 << 20
# Besides msgspec's own error: for a text that is not UTF-8, and for objects nested too deeply.
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_COLLECTORS = "Telegraf, Metricbeat, jmxtrans, Jolokia"


class Reading(NamedTuple):
    """The content of a message; without samples and reasons, its metrics have nothing to do with quotas."""

    samples: list[JmxSample]
    reasons: list[str]


class _Batch(msgspec.Struct):
    metrics: list[msgspec.Raw]


_metric = msgspec.json.Decoder(Metric)
_batch = msgspec.json.Decoder(_Batch)
_event = msgspec.json.Decoder(Event)
_default = msgspec.json.Decoder(DefaultResult)
_detailed = msgspec.json.Decoder(DetailedResult)
_answer = msgspec.json.Decoder(Answer)


_ABSENT = msgspec.Raw()


class _Keys(msgspec.Struct, rename="camel"):
    """The fields that identify a collector, undecoded."""

    metrics: msgspec.Raw = _ABSENT
    fields: msgspec.Raw = _ABSENT
    name: msgspec.Raw = _ABSENT
    jolokia: msgspec.Raw = _ABSENT
    keyspace: msgspec.Raw = _ABSENT
    type_name: msgspec.Raw = _ABSENT
    request: msgspec.Raw = _ABSENT


_keys = msgspec.json.Decoder(_Keys)


def read_jmx_message(value: bytes, origin: Origin) -> Reading:
    """All samples of a message, and the reasons why parts of it, or all of it, cannot be read."""
    samples: list[JmxSample] = []
    reasons: dict[str, None] = {}
    try:
        for found in _found(value, origin):
            if isinstance(found, JmxSample):
                samples.append(found)
            elif found is not None:
                reasons[str(found)] = None
    except Unreadable as reason:
        reasons[str(reason)] = None
    except _MALFORMED as error:
        reasons[_short(error)] = None
    return Reading(samples, list(reasons))


def _found(value: bytes, origin: Origin) -> Iterator[JmxSample | Unreadable | None]:
    if len(value) > MAX_MESSAGE_BYTES:
        raise Unreadable(f"message longer than {MAX_MESSAGE_BYTES} bytes")
    keys = _keys.decode(value)
    if bytes(keys.metrics):
        for metric in _batch.decode(value).metrics:
            yield _of_batch(metric, origin)
    elif bytes(keys.name) and bytes(keys.fields):
        yield telegraf_sample(_metric.decode(value), origin)
    elif bytes(keys.jolokia):
        yield metricbeat_sample(_event.decode(value), origin)
    elif bytes(keys.keyspace):
        yield default_sample(_default.decode(value), origin)
    elif bytes(keys.type_name):
        yield detailed_sample(_detailed.decode(value), origin)
    elif bytes(keys.request):
        yield from jolokia_samples(_answer.decode(value), origin)
    else:
        raise Unreadable(f"of no collector that is known ({_COLLECTORS})")


def _of_batch(metric: msgspec.Raw, origin: Origin) -> JmxSample | Unreadable | None:
    """The sample of one metric in a batch; an error is returned, so that the other metrics are still read."""
    try:
        return telegraf_sample(_metric.decode(metric), origin)
    except Unreadable as reason:
        return reason
    except _MALFORMED as error:
        return Unreadable(_short(error))


def _short(error: Exception) -> str:
    """The reason from msgspec, cut; it names types and paths and never quotes the message."""
    if isinstance(error, UnicodeDecodeError):
        return "no message of a collector: not UTF-8"
    return f"no message of a collector: {error}"[:200]
