"""Which metrics and labels an expression of PromQL asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from promql_parser import AggregateExpr, BinaryExpr, Expr, MatrixSelector, VectorSelector, parse, walk

OF_SCRAPES = {"job", "instance"}
"""Labels that Prometheus adds to whatever it scrapes."""


class Asked(NamedTuple):
    """What an expression asks for."""

    selectors: list[tuple[str, set[str]]]
    """Each metric with the labels of its braces."""
    grouped: set[str]
    """Labels of by, without, on, ..."""

    @property
    def metrics(self) -> set[str]:
        """All metrics."""
        return {name for name, _ in self.selectors}


def asked(expression: str) -> Asked:
    """What it asks for."""
    found = Asked([], set())

    def visit(part: Expr) -> None:
        selector = part.vector_selector if isinstance(part, MatrixSelector) else part
        if isinstance(selector, VectorSelector):
            found.selectors.append((selector.name or "", {one.name for one in selector.matchers.matchers}))
        elif isinstance(part, AggregateExpr) and part.modifier:
            found.grouped.update(part.modifier.labels)
        elif isinstance(part, BinaryExpr) and part.modifier:
            matching = part.modifier.matching
            found.grouped.update(matching.labels if matching else (), part.modifier.group_labels or ())

    walk(parse(expression), visit)
    return found


def labels_asked_wrongly(expression: str, labels: Mapping[str, set[str]]) -> list[str]:
    """Metrics that are not there and labels that they do not have; empty if there are none.

    Args:
        expression: PromQL.
        labels: of each metric that there is.
    """
    found = asked(expression)
    wrong = [f"no metric {name}" for name in sorted(found.metrics - set(labels))]
    for name, given in found.selectors:
        if name in labels:
            wrong += [f"no label {label} in {name}" for label in sorted(given - labels[name] - OF_SCRAPES)]
    known = {label for name in found.metrics for label in labels.get(name, set())}
    return wrong + [f"no label {label} to group by" for label in sorted(found.grouped - known - OF_SCRAPES)]
