"""Which metrics and labels an expression of PromQL asks for: its words, told apart by where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\]|\boffset\s+\w+)|(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<comment>\#[^\n]*)|(?P<sign>[^\s])|\s+"""
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "inf", "nan"}
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
    """What it asks for; a word before a bracket is a function, in braces a label."""
    selectors: list[tuple[str, set[str]]] = []
    grouped: set[str] = set()
    tokens = list(_tokens(expression))
    place, after = "", ""
    for index, (kind, text) in enumerate(tokens):
        following = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        if text == "{":
            place = "braces"
        elif text == "(" and after in _GROUPING:
            place = "grouping"
        elif text in ("}", ")"):
            place = ""
        elif kind == "word" and place == "braces":
            selectors[-1][1].add(text)
        elif kind == "word" and place == "grouping":
            grouped.add(text)
        elif kind == "word" and following not in {"("} | _GROUPING and text.lower() not in _WORDS | _GROUPING:
            selectors.append((text, set()))
        after = text
    return Asked(selectors, grouped)


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(expression):
        if match.lastgroup in ("word", "sign"):
            yield match.lastgroup, match[0]
        elif match.lastgroup != "comment" and match.lastgroup:
            yield match.lastgroup, ""


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
