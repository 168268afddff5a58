"""Names of a broker's quota sensors in JMX, e.g. `kafka.server:type=Produce,user=alice,client-id="my:client"`.

Source: Kafka's `JmxReporter`, `Sanitizer.jmxSanitize`, `DefaultQuotaCallback`; Java's `ObjectName`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kquota_spark.model.quotas.names import desanitise, sanitise
from kquota_spark.model.quotas.resolve import Bucket

DOMAIN = "kafka.server"
USER_TAG, CLIENT_ID_TAG = "user", "client-id"
"""Tags of Kafka's own buckets. The value of the first is a sanitised name, that of the second a raw one."""

_PLAIN = re.compile(r"[A-Za-z0-9_\-%. \t]*")
_PROPERTY = re.compile(r'([^=,:*?\n]+)=("(?:[^"\\*?\n]|\\["\\*?n])*"|[^"=,:*?\n]*)(,|\Z)')
_QUOTED = re.compile(r'"(?:[^"\\*?\n]|\\["\\*?n])*"')
_TO_ESCAPE = re.compile(r'["\\*?\n]')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class MBeanName:
    """The parts of a name; the values of tags are those that the broker set, without JMX's quotes."""

    domain: str
    type: str
    tags: Mapping[str, str]


def mbean_name(group: str, tags: Mapping[str, str]) -> str:
    """The name that a broker registers for a sensor; a tag without a value is left out.

    Args:
        group: group of the metric, which JMX calls type, e.g. `Produce` or `socket-server-metrics`.
        tags: tags of the metric in the broker's order, e.g. `bucket_tags`.
    """
    written = [f"{key}={_quoted(value)}" for key, value in tags.items() if key and value]
    return f"{DOMAIN}:" + ",".join([f"type={group}", *written])


def parse_mbean_name(text: str) -> MBeanName:
    """Split a name into its parts. Its properties may be in any order, because collectors sort them.

    Raises:
        ValueError: the text is not the name of one MBean (a pattern is not), or has no type.
    """
    domain, colon, properties = text.partition(":")
    tags: dict[str, str] = {}
    end, comma = 0, ","
    while comma and (found := _PROPERTY.match(properties, end)):
        key, value, comma = found.groups()
        if key in tags:
            raise _error(text, f"{key} stands in it twice")
        tags[key] = unquoted(value)
        end = found.end()
    if comma or not colon or re.search(r"[*?\n]", domain):
        raise _error(text, "expected domain:key=value,...")
    if "type" not in tags:
        raise _error(text, "it has no type")
    return MBeanName(domain, tags.pop("type"), tags)


def bucket_tags(bucket: Bucket) -> dict[str, str]:
    """The tags of a bucket of Kafka's own callback."""
    return {USER_TAG: sanitise(bucket.user), CLIENT_ID_TAG: bucket.client_id}


def tagged_bucket(tags: Mapping[str, str]) -> Bucket | None:
    """The bucket that tags name; None for tags that Kafka's own callback does not make.

    Raises:
        ValueError: the user is not a sanitised name.
    """
    if not tags.keys() <= {USER_TAG, CLIENT_ID_TAG}:
        return None
    return Bucket(desanitise(tags.get(USER_TAG, "")), tags.get(CLIENT_ID_TAG, ""))


def unquoted(value: str) -> str:
    """The value of a property as the broker set it. A value that begins with a quote was quoted by JMX.

    Raises:
        ValueError: the value was quoted, and a part of it is missing.
    """
    if not value.startswith('"'):
        return value
    if _QUOTED.fullmatch(value) is None:
        raise ValueError(value)
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = _TO_ESCAPE.sub(lambda found: "\\n" if found[0] == "\n" else f"\\{found[0]}", value)
    return f'"{escaped}"'


def _error(text: str, problem: str) -> ValueError:
    return ValueError(f"{text[:200]!r} is no MBean name: {problem}")
