"""What every format checks before it writes, and how it writes numbers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from kquota_spark.formats.exchange.reading import name_problem, shown
from kquota_spark.formats.quota_files.quota_values import expected_value
from kquota_spark.model.quotas import quota_set
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

Parts = tuple[tuple[str, str | Default], ...]
"""The parts of an entity with the types of the Admin API, `user` first."""


def writable(quotas: QuotaSet) -> list[tuple[AnyEntity, Mapping[AnyKey, float]]]:
    """The entities with their values, both in the order in which people read them.

    Raises:
        ValueError: names or values that no reader would take back, one a line.
    """
    problems: list[str] = []
    found: list[tuple[AnyEntity, Mapping[AnyKey, float]]] = []
    for entity in in_order(quotas):
        for kind, name in parts_of(entity):
            if (wrong := name_problem(name)) is not None:
                problems.append(f"{kind} {shown(name)}: {wrong}")
        keys: list[AnyKey] = [*IpQuotaKey] if isinstance(entity, IpEntity) else [*QuotaKey]
        values = {key: quotas[entity][key] for key in keys if key in quotas[entity]}
        for key in quotas[entity].keys() - values.keys():
            problems.append(f"{entity} {key.value}: expected one of {', '.join(key.value for key in keys)}")
        for key, value in values.items():
            if (expected := expected_value(key.value, value)) is not None:
                problems.append(f"{entity} {key.value} {value}: expected {expected}")
        if values:
            found.append((entity, values))
    refuse(problems)
    return found


def refuse(problems: list[str]) -> None:
    """Raise a ValueError with these problems, one a line; nothing without any."""
    if problems:
        raise ValueError("\n".join(problem.replace("\n", " ") for problem in problems))


def parts_of(entity: AnyEntity) -> Parts:
    """The parts that an entity has."""
    return tuple((kind.value, name) for kind, name in quota_set.parts_of(entity).items())


def default_as_text(entity: AnyEntity, name: str | Default, problems: list[str]) -> str:
    """A name where `<default>` stands for the default: nobody can really be called that, which is noted."""
    if isinstance(name, Default):
        return name.value
    if name == DEFAULT.value:
        problems.append(f"{entity}: really called {DEFAULT.value}, which means the default in this format")
    return name


def number_text(value: float) -> str:
    """All digits and no exponent: `1048576`, `25.5`, as every tool reads numbers."""
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
