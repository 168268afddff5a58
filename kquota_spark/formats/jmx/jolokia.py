"""Answers of Jolokia to a read request, as `kquota collect jmx` sends them: with the broker's id and the time.

An answer as it comes from Jolokia is read too; its time is in seconds, and the broker's id has to be the message's
key or a header. Source: Jolokia's protocol, and answers of Jolokia 2.1.2 on brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from kquota_spark.formats.jmx.sample import JmxSample, Origin, attributes_of, broker_of, epoch_ms, sample_of
from kquota_spark.formats.request_log.request import Unreadable
from kquota_spark.model.quotas.mbean_names import DOMAIN, parse_mbean_name
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS

MBEANS_IN_A_MESSAGE = 500
"""Of about 150 bytes each: far from the megabyte that a message may have."""
_NO_SUCH_MBEAN = 404


class Read(msgspec.Struct):
    """What was asked for."""

    mbean: str
    type: str = "read"
    attribute: Any = None


class Answer(msgspec.Struct):
    """An answer; `broker_id` and `time_ms` are what our collector adds."""

    request: Read
    status: int
    value: Any = None
    timestamp: int | float | None = None
    error: str | None = None
    broker_id: int | None = None
    time_ms: Annotated[int, msgspec.Meta(ge=BEGINNING_MS, le=END_MS)] | None = None


def jolokia_samples(answer: Answer, origin: Origin) -> Iterator[JmxSample | Unreadable]:
    """The samples of an answer, or why one cannot be read; Unreadable if nothing of it can be read."""
    if answer.status == _NO_SUCH_MBEAN:
        return
    if answer.status != 200:
        raise Unreadable(f"Jolokia answered with status {answer.status}")
    broker_id = broker_of([answer.broker_id], (), origin)
    time_ms = epoch_ms(answer.timestamp) if answer.time_ms is None else answer.time_ms
    for mbean, values in _by_mbean(answer):
        try:
            yield from _samples(broker_id, time_ms, mbean, values)
        except Unreadable as reason:
            yield reason


def messages(
    answers: list[dict[str, Any]], broker_id: int, time_ms: int, *, of: int = MBEANS_IN_A_MESSAGE
) -> Iterator[bytes]:
    """The messages of our collector: one an answer, several of one with more MBeans than `of`.

    An answer that there is no such MBean is left out: a broker has none before it measures.
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
    """Values by MBean: of a pattern they are nested by name, of one attribute they are no mapping."""
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


def _samples(broker_id: int, time_ms: int, mbean: str, values: Mapping[str, Any]) -> Iterator[JmxSample]:
    try:
        name = parse_mbean_name(mbean)
    except ValueError:
        raise Unreadable("a key of its value is no MBean name") from None
    if name.domain == DOMAIN:
        sample = sample_of(broker_id, time_ms, name, attributes_of(values))
        if sample is not None:
            yield sample
