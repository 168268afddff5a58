"""Quotas as `rpk cluster quotas` prints them (`describe --format json|yaml`) and reads them (`import`).

A document `{quotas: [{entity: [{name, type}], values: [{key, value}]}]}` with types as in the Admin API. `value` is one
number, as a text. Some releases call it `values` instead, as the help still does. Both are read, and both are written:
rpk ignores a field that it does not know, but refuses a file without the field that it expects.
The name `<default>` means the default, so this format cannot express a client with that name.

Source: rpk's `quotas` package, `describe.go` and `import.go`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kquota_spark.formats.exchange.checks import (
    Reading,
    checked_text,
    default_as_text,
    number_text,
    parts_of,
    refuse,
    writable,
)
from kquota_spark.formats.exchange.documents import read_documents
from kquota_spark.model.quotas.entities import DEFAULT
from kquota_spark.model.quotas.quota_set import QuotaSet


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str


class _Value(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | float | msgspec.UnsetType = msgspec.UNSET
    values: str | float | msgspec.UnsetType = msgspec.UNSET


class _Quota(msgspec.Struct, forbid_unknown_fields=True):
    entity: list[_Part]
    values: list[_Value]


def read(text: str) -> QuotaSet:
    """The quotas of a document, JSON or YAML; ValueError with one line per problem."""
    reading = Reading()
    for index, item in enumerate(_items(checked_text(text))):
        where = f"quotas[{index}]"
        try:
            quota = msgspec.convert(item, _Quota)
        except msgspec.ValidationError as error:
            reading.problem(where, str(error))
            continue
        entity = reading.entity(
            f"{where}.entity",
            [(part.type, DEFAULT if part.name == DEFAULT.value else part.name) for part in quota.entity],
        )
        if entity is None:
            continue
        for at, pair in enumerate(quota.values):
            place = f"{where}.values[{at}]"
            numbers = [number for number in (pair.value, pair.values) if number is not msgspec.UNSET]
            if len(set(numbers)) != 1:
                reading.problem(place, f"{len(set(numbers))} numbers in value and values, expected one")
            else:
                reading.add(place, entity, pair.key, numbers[0])
    return reading.quotas()


def _items(text: str) -> list[Any]:
    documents = read_documents(text)
    document = documents[0] if len(documents) == 1 else None
    # rpk leaves the list out where there are no quotas.
    if not isinstance(document, dict) or not document.keys() <= {"quotas"}:
        raise ValueError('expected one document with a list under "quotas" and nothing else')
    items = document.get("quotas", [])
    if not isinstance(items, list):
        raise ValueError("quotas: expected a list")
    return items


def write(quotas: QuotaSet) -> str:
    """The JSON document, one line per entity; ValueError for one that it cannot hold, e.g. a user named `<default>`."""
    problems: list[str] = []
    lines = []
    for entity, values in writable(quotas):
        parts = [
            {"name": default_as_text(entity, name, problems), "type": kind} for kind, name in parts_of(entity)
        ]
        numbers = {key.value: number_text(value) for key, value in values.items()}
        found = [{"key": key, "value": number, "values": number} for key, number in numbers.items()]
        lines.append(json.dumps({"entity": parts, "values": found}))
    refuse(problems)
    return '{"quotas": [' + ",".join(f"\n{line}" for line in lines) + "\n]}\n"
