"""Converts a page of Prometheus' jmx_exporter back to the MBeans, in the form of Jolokia's answers.

The name of a metric and its labels follow from the exporter's rules. Three forms are in use:

* Without rules, and at MSK Open Monitoring: `kafka_server_Produce_byte_rate{user="alice",client_id="etl"}`.
* With lowercaseOutputName, the same in lower case: `kafka_server_produce_byte_rate`.
* With the rules for quotas in its examples and in Strimzi, the type is a label:
  `kafka_server_quota_byte_rate{resource="Produce",user="alice",clientId="etl"}`. For a pair, Strimzi's rules put
  `Produce, user=alice` into the type.

Values of labels are those of JMX, in quotes where JMX needs them.

The parser is our own. That of prometheus_client stops at the first malformed line of a page, takes twice the time
(24 us per line), and would add a dependency to save twenty lines.
Source: jmx_exporter's `JmxCollector` and `JmxMBeanPropertyCache`, and pages of its release 1.0.1
(tests/data/jmx-exporter).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kquota_spark.formats.jmx.sample import MBEAN_TYPES, attributes_of, plain
from kquota_spark.model.quotas.mbean_names import CLIENT_ID_TAG, DOMAIN, USER_TAG, mbean_name, unquoted

_PREFIX = "kafka_server_"
_SAMPLE = re.compile(r"([A-Za-z_]\w*)(?:\{(.*)\})?[ \t]+([-+.0-9A-Za-z]+)(?:[ \t]+-?[0-9]+)?", re.ASCII)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\Z)', re.ASCII)
_SANITISED = re.compile(r"[A-Za-z0-9._%-]*")
_ESCAPED = re.compile(r'\\([\\"n])')
_TYPES = {plain(name): name for name in MBEAN_TYPES.values()}
_TYPE_IN_LABEL = "quota"
_LABELS_OF_TYPE = ("resource", "type")
_MOST_PARTS = 12
_LINE_SHOWN = 200


def mbeans_of(page: str) -> dict[str, dict[str, float]]:
    """The quota sensors of a page: values by attribute, by MBean name.

    A line that cannot be read becomes a key that is not an MBean name, so that the job records it as unreadable.
    """
    found: dict[str, dict[str, float]] = {}
    for line in page.split("\n"):
        name = line[: len(_PREFIX)].lower()
        sensor = _sensor(re.split(r"[{ \t]", line, maxsplit=1)[0]) if name == _PREFIX else None
        if sensor is not None:
            mbean_type, attribute = sensor
            try:
                mbean, value = _sample(line.strip(), mbean_type)
                found.setdefault(mbean, {})[attribute] = value
            except ValueError:
                found[f"?{line[:_LINE_SHOWN]}"] = {}
    return found


@lru_cache(1_000)
def _sensor(metric: str) -> tuple[str, str] | None:
    """The MBean's type and attribute for the name of a metric; None for one that has nothing to do with quotas."""
    parts = metric[len(_PREFIX) :].split("_", _MOST_PARTS)
    for cut in range(1, len(parts)):
        head, attribute = plain("".join(parts[:cut])), "-".join(parts[cut:]).lower()
        if (head in _TYPES or head == _TYPE_IN_LABEL) and attributes_of({attribute: None}):
            return _TYPES.get(head, ""), attribute
    return None


def _sample(line: str, mbean_type: str) -> tuple[str, float]:
    """The MBean of a line, and its value; ValueError if the line is not a sample."""
    sample = _SAMPLE.fullmatch(line)
    if sample is None:
        raise ValueError(line)
    labels = _labels(sample[2] or "")
    if not mbean_type:
        type_label = next((labels.pop(label) for label in _LABELS_OF_TYPE if label in labels), "")
        mbean_type, _, user = type_label.partition(f", {USER_TAG}=")
        if user:
            labels.setdefault(USER_TAG, user)
        if mbean_type not in _TYPES.values():
            raise ValueError(line)
    tags = {_tag(label): unquoted(value) for label, value in labels.items()}
    if not _SANITISED.fullmatch(tags.get(USER_TAG, "")):
        # The rule `user=(.+), client-id=(.+)` splits at the wrong place if a client calls itself `x, client-id=y`.
        raise ValueError(line)
    return mbean_name(mbean_type, tags), float(sample[3])


@lru_cache(1_000)
def _tag(label: str) -> str:
    """The tag of a bucket for a label; labels cannot contain a dash."""
    return CLIENT_ID_TAG if plain(label) == "clientid" else label


def _labels(text: str) -> dict[str, str]:
    """Labels with their values; ValueError if the text is not such a list. Older exporters end it with a comma."""
    labels: dict[str, str] = {}
    end = 0
    while end < len(text):
        label = _LABEL.match(text, end)
        if label is None or label[1] in labels:
            raise ValueError(text)
        labels[label[1]] = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], label[2])
        end = label.end()
    return labels


def answers_of(page: str) -> list[dict[str, Any]]:
    """The sensors of a page in the form of Jolokia's answer to a read of all of them; empty if there is none."""
    found = mbeans_of(page)
    return (
        [{"request": {"type": "read", "mbean": f"{DOMAIN}:*"}, "status": 200, "value": found}]
        if found
        else []
    )
