"""Quotas as Terraform resources of the Mongey/kafka provider, `kafka_quota`: users, client ids and ips, no pairs.

    resource "kafka_quota" "user_alice" {
      entity_type = "user"
      entity_name = "alice"
      config = {
        producer_byte_rate = 1048576
      }
    }

Without a name it is the default. Read is what is written here and what people write by hand of that kind; anything that
Terraform would have to evaluate is a problem with its line. Terraform knows texts in Unicode's form NFC only. What is
written is as `terraform fmt` would have it.

Pairs are read as `kafka_quota_composite` and never written: no release of the provider has it (0.13.1; it is proposed),
and Terraform takes nothing of a file with a resource that its provider does not know.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from kquota_spark.formats.exchange.checks import (
    Reading,
    checked_text,
    number_text,
    parts_of,
    refuse,
    writable,
)
from kquota_spark.formats.exchange.hcl import Attribute, Block, Number, quoted, read_blocks
from kquota_spark.model.quotas.entities import DEFAULT, Name
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey

_ONE, _PAIR = ("resource", "kafka_quota"), ("resource", "kafka_quota_composite")
_NO_LABEL = re.compile(r"[^A-Za-z0-9]+")
_MOST_LABEL_CHARACTERS = 60


def read(text: str) -> QuotaSet:
    """The quotas of all such resources; ValueError with one line a problem, each with the number of the line."""
    reading = Reading()
    blocks, problems = read_blocks(checked_text(text), frozenset({_ONE, _PAIR}))
    for line, problem in problems:
        reading.problem(f"line {line}", problem)
    labels: set[tuple[str, ...]] = set()
    for block in blocks:
        if block.labels in labels or len(block.labels) != 2:
            reading.problem(f"line {block.line}", "expected a resource with a type and a name of its own")
        labels.add(block.labels)
        _read_block(block, reading)
    return reading.quotas()


def _read_block(block: Block, reading: Reading) -> None:
    is_pair = block.labels[0] == _PAIR[1]
    _check_names(block, {"config"} if is_pair else {"config", "entity_type", "entity_name"}, reading)
    for inner in block.blocks:
        if inner.kind != "entity" or not is_pair:
            reading.problem(f"line {inner.line}", f"a block {inner.kind[:60]}, expected none")
    parts = []
    if is_pair:
        for inner in block.blocks:
            _check_names(inner, {"type", "name"}, reading)
            parts.append(_part(inner, "type", "name", reading))
    else:
        parts.append(_part(block, "entity_type", "entity_name", reading))
    if is_pair and len(parts) != 2:
        reading.problem(f"line {block.line}", f"{len(parts)} entity blocks, expected two")
        return
    entity = reading.entity(f"line {block.line}", parts)
    config = block.attributes.get("config", Attribute(block.line, {}))
    if not isinstance(config.value, dict):
        reading.problem(f"line {config.line}", "config: expected a map of keys and numbers")
    elif entity is not None:
        for key, attribute in config.value.items():
            reading.add(f"line {attribute.line}", entity, key, attribute.value)


def _check_names(block: Block, names: set[str], reading: Reading) -> None:
    for name, attribute in block.attributes.items():
        if name not in names:
            reading.problem(
                f"line {attribute.line}", f"{name[:60]}, expected only {', '.join(sorted(names))}"
            )


def _part(block: Block, kind: str, name: str, reading: Reading) -> tuple[str, Name]:
    """The type and name of an entity; without a name, the default."""
    given = {part: block.attributes[part] for part in (kind, name) if part in block.attributes}
    for part, attribute in given.items():
        if isinstance(attribute.value, Number | dict):
            reading.problem(f"line {attribute.line}", f"{part}: expected a text in quotes")
    kind_text = str(given[kind].value) if kind in given else ""
    return kind_text, str(given[name].value) if name in given else DEFAULT


def write(quotas: QuotaSet) -> str:
    """A resource for each entity; ValueError for pairs, and for names that Terraform would spell in another way."""
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
    """A name for the resource, made of the entity's, and of a number where others are alike."""
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
    named = "" if name is DEFAULT else f"  entity_name = {quoted(str(name))}\n"
    width = max(len(key.value) for key in values)
    config = "".join(f"    {key.value:{width}} = {number_text(value)}\n" for key, value in values.items())
    return (
        f'{_ONE[0]} "{_ONE[1]}" "{label}" {{\n'
        f"  entity_type = {quoted(kind)}\n{named}  config = {{\n{config}  }}\n}}\n"
    )
