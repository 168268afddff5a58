"""Quotas as Terraform resources of the Mongey/kafka provider, `kafka_quota`: users, client ids and ips, no pairs.

    resource "kafka_quota" "user_alice" {
      entity_type = "user"
      entity_name = "alice"
      config = {
        producer_byte_rate = 1048576
      }
    }

A resource without a name is for the default. Files are written in the layout of `terraform fmt`. They are not read,
because Terraform's language must be evaluated. Instead, the output of `terraform show -json` is read, for a state or a
plan. In a plan, a value that is known only after apply is a problem.

Pairs are neither read nor written: no release of the provider has a resource for them (0.13.1).

Source: "JSON Output Format" of Terraform; the provider's `kafka_quota`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kquota_spark.formats.exchange.checks import (
    Reading,
    checked_text,
    number_text,
    parts_of,
    refuse,
    writable,
)
from kquota_spark.formats.exchange.documents import read_json
from kquota_spark.model.quotas.entities import DEFAULT, Name
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey

_RESOURCE = "kafka_quota"
_ATTRIBUTES = ("entity_type", "entity_name", "config")
_NO_LABEL = re.compile(r"[^A-Za-z0-9]+")
_MOST_LABEL_CHARACTERS = 60
_TEMPLATE = re.compile(r"([$%])(\1*)\{")
_NOT_JSON = (
    "Terraform's language is not read, expected the output of terraform show -json (of a state or a plan)"
)


class _Values(msgspec.Struct):
    entity_type: str
    entity_name: str | None = None
    config: dict[str, str | float] | None = None


class _Resource(msgspec.Struct):
    values: _Values
    address: str = ""


class _Module(msgspec.Struct):
    resources: list[dict[str, Any]] = []
    child_modules: list[_Module] = []


class _Root(msgspec.Struct):
    root_module: _Module | None = None


class _Change(msgspec.Struct):
    after_unknown: Any = None


class _ResourceChange(msgspec.Struct):
    address: str = ""
    change: _Change | None = None


class _Shown(msgspec.Struct):
    """A state has `values`, a plan has `planned_values`; a state without resources has neither."""

    format_version: str
    values: _Root | None = None
    planned_values: _Root | None = None
    resource_changes: list[_ResourceChange] = []


def read(text: str) -> QuotaSet:
    """The `kafka_quota` resources of a state or plan, as `terraform show -json` prints it.

    Raises:
        ValueError: one line per problem, each with the address of the resource.
    """
    text = checked_text(text)
    if not text.lstrip().startswith("{"):
        raise ValueError(_NOT_JSON)
    try:
        found = msgspec.convert(read_json(text), _Shown)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply, expected quotas") from None
    reading = Reading()
    unknown = {change.address: list(_unknown(change)) for change in found.resource_changes}
    root = found.planned_values or found.values or _Root()
    for resource in _resources(root.root_module or _Module()):
        where = str(resource.get("address", "a resource"))[:200]
        try:
            values = msgspec.convert(resource, _Resource).values
        except msgspec.ValidationError as error:
            reading.problem(where, str(error))
            continue
        for attribute in unknown.get(where, ()):
            reading.problem(where, f"{attribute} is known only after apply, expected a value")
        name = DEFAULT if values.entity_name is None else values.entity_name
        if (entity := reading.entity(where, [(values.entity_type, name)])) is not None:
            for key, value in (values.config or {}).items():
                reading.add(where, entity, key, value)
    return reading.quotas()


def _resources(module: _Module) -> Iterator[dict[str, Any]]:
    """The resources with quotas of a module and of those below it, without data sources."""
    modules = [module]
    while modules:
        here = modules.pop()
        for resource in here.resources:
            if resource.get("type") == _RESOURCE and resource.get("mode", "managed") == "managed":
                yield resource
        modules.extend(reversed(here.child_modules))


def _unknown(change: _ResourceChange) -> Iterator[str]:
    """Attributes with values known only after apply: a plan leaves them out, as if nobody had set them."""
    after = change.change.after_unknown if change.change else None
    if isinstance(after, dict):
        yield from (attribute for attribute in _ATTRIBUTES if _has_true(after.get(attribute)))


def _has_true(value: Any) -> bool:
    return value is True or (isinstance(value, dict) and any(_has_true(inner) for inner in value.values()))


def write(quotas: QuotaSet) -> str:
    """A resource for each entity; ValueError for pairs, and for names that Terraform would change."""
    problems: list[str] = []
    labels: set[str] = set()
    resources = []
    for entity, values in writable(quotas):
        part, *others = parts_of(entity)
        if others:
            problems.append(f"{entity}: a kafka_quota has a user or a client id, no pair")
        elif isinstance(part[1], str) and unicodedata.normalize("NFC", part[1]) != part[1]:
            problems.append(
                f"{entity}: a name that is not in Unicode's form NFC, which Terraform would change"
            )
        else:
            resources.append(_resource(part, values, _label(part, labels)))
    refuse(problems)
    return "\n".join(resources)


def _label(part: tuple[str, Name], taken: set[str]) -> str:
    """A name for the resource, from the entity's name, with a number if that is taken."""
    kind, name = part
    words = _NO_LABEL.sub("_", f"{kind}_{'default' if name is DEFAULT else name}")
    stem = words[:_MOST_LABEL_CHARACTERS].strip("_")
    label, number = stem, 1
    while label in taken:
        number += 1
        label = f"{stem}_{number}"
    taken.add(label)
    return label


def _resource(part: tuple[str, Name], values: Mapping[AnyKey, float], label: str) -> str:
    kind, name = part
    named = "" if name is DEFAULT else f"  entity_name = {_quoted(str(name))}\n"
    width = max(len(key.value) for key in values)
    config = "".join(f"    {key.value:{width}} = {number_text(value)}\n" for key, value in values.items())
    return (
        f'resource "{_RESOURCE}" "{label}" {{\n'
        f"  entity_type = {_quoted(kind)}\n{named}  config = {{\n{config}  }}\n}}\n"
    )


def _quoted(text: str) -> str:
    """A text in quotes that Terraform reads literally: no template, and no character that ends a line."""
    # If several dollars precede a brace, all but the last are written as escapes: $${ then has only one reading.
    safe = _TEMPLATE.sub(lambda found: f"{_escape(found[1]) * len(found[2])}{found[1] * 2}{{", _escaped(text))
    return f'"{safe}"'


def _escaped(text: str) -> str:
    return "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else _escape(char) for char in text
    )


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
