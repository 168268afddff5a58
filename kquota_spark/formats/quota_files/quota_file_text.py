"""Writes `quotas.yaml`: rules from another source, in the form that `quota_file` reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import yaml

from kquota_spark.formats.quota_files.quota_file import Entry, IpLimit, expected_value
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import IP_QUOTA_KEY, AnyKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, RulePeriod


def quota_file_text(rules: Iterable[RulePeriod], ip_limits: Iterable[IpLimit] = ()) -> str:
    """The text of a quota file, oldest entries first; `model.quotas.rules` makes such rules from changes.

    Reading it back gives the same values at every time. Versions, and edits that changed nothing, are left out.

    Raises:
        ValueError: such a file cannot hold a name or value: a user named `<default>`, an empty name, or a limit
            that is negative, not finite, or larger than brokers hold.
    """
    entries = [
        *_rule_entries(rules),
        *(Entry(ip.entity, IP_QUOTA_KEY, ip.connections_per_s, ip.from_ms, ip.to_ms) for ip in ip_limits),
    ]
    entries.sort(key=lambda entry: (entry.from_ms, str(entry.entity), entry.type))
    # In ASCII, because PyYAML does not read back every line separator that it leaves unescaped.
    return yaml.safe_dump([*map(_fields, entries)], default_flow_style=None, sort_keys=False, width=math.inf)


def _rule_entries(rules: Iterable[RulePeriod]) -> Iterator[Entry]:
    """One entry per value of a key and the whole period in which it is unchanged."""
    latest: dict[tuple[AnyEntity, AnyKey], Entry] = {}
    for rule in sorted(rules, key=lambda rule: rule.valid_from_ms):
        for key, value in rule.values.items():
            entry = Entry(rule.entity, key.value, value, rule.valid_from_ms, rule.valid_to_ms)
            last = latest.get((rule.entity, key))
            if last is not None and (last.to_ms, last.value) == (entry.from_ms, value):
                entry = replace(last, to_ms=entry.to_ms)
            elif last is not None:
                yield last
            latest[rule.entity, key] = entry
    yield from latest.values()


def _fields(entry: Entry) -> dict[str, str | float | None]:
    match entry.entity:
        case IpEntity(ip):
            names = {"ip": _name(entry, ip)}
        case Entity(user, client_id):
            names = {"user": _name(entry, user), "client_id": _name(entry, client_id)}
    from_ms = None if entry.from_ms == BEGINNING_MS else entry.from_ms
    return {**names, "type": entry.type, "value": _value(entry), "from_ms": from_ms, "to_ms": entry.to_ms}


def _name(entry: Entry, name: Name) -> str | None:
    if isinstance(name, Default):
        return name.value
    if name in ("", DEFAULT.value):
        raise _refusal(entry, f"a quota file has no way to write the name {name!r}")
    return name


def _value(entry: Entry) -> float:
    if expected_value(entry.type, entry.value) is not None:
        raise _refusal(entry, f"a quota file cannot hold the value {entry.value}")
    return int(entry.value) if entry.value == int(entry.value) else entry.value


def _refusal(entry: Entry, problem: str) -> ValueError:
    return ValueError(f"{entry.entity} {entry.type}: {problem}")
