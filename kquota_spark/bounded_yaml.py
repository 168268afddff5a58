"""A safe YAML loader that a hostile file cannot keep busy: it limits the depth and the length of numbers.

Python takes seconds to convert a number of thousands of digits. A number in base 60 (`1:59:59`) takes time quadratic
in its length, and none of Python's limits applies to it.

Numbers have one grammar, here and on command lines: decimal ASCII digits, a fraction, an exponent. YAML 1.1 and Python
accept more: `1_000`, `010` as 8, `1:30` as 90, digits of other scripts. Their reading is rarely the intended one.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml import MarkedYAMLError
from yaml.composer import Composer

_MOST_DEPTH = 50
"""Maximum number of lists and mappings around a value."""
MOST_CHARACTERS = 1_000
"""Maximum length of a number as it is written; the largest double has 309 digits."""
_DECIMAL = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NO_DIGITS = re.compile(r"[-+]?\.[A-Za-z]+")
"""Infinity and not-a-number (`.inf`, `.nan`): each reader of numbers refuses them by name."""


def is_decimal(text: str) -> bool:
    """Whether a text is a number in the one grammar of settings, quota files and options."""
    return _DECIMAL.fullmatch(text) is not None


class BoundedLoader(Composer, yaml.CSafeLoader):
    """A safe loader that refuses deep nesting, and refuses a long number before converting it.

    A number in another grammar than that of `is_decimal` stays a text. The caller that expects a number can then name
    its key in the error.

    libyaml parses, in a fifth of the time that Python takes. Python composes the nodes, because deep nesting in C
    ends the process.

    Raises:
        yaml.MarkedYAMLError: nested deeper than 50, or a number is longer than 1,000 characters.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node, and count its depth from the outermost one."""
        if self._depth > _MOST_DEPTH:
            event: Any = self.peek_event()  # there is one, or nothing would be composed
            raise MarkedYAMLError(problem=f"nested deeper than {_MOST_DEPTH}", problem_mark=event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def bounded_int(self, node: yaml.ScalarNode) -> int | str:
        """A whole number, checked for its length first."""
        _check(node)
        return int(node.value) if is_decimal(node.value) else str(node.value)

    def bounded_float(self, node: yaml.ScalarNode) -> float | str:
        """A number with a fraction, checked for its length first."""
        _check(node)
        is_number = is_decimal(node.value) or _NO_DIGITS.fullmatch(node.value)
        return float(self.construct_yaml_float(node)) if is_number else str(node.value)


BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.bounded_int)
BoundedLoader.add_constructor("tag:yaml.org,2002:float", BoundedLoader.bounded_float)


def _check(node: yaml.ScalarNode) -> None:
    if len(node.value) > MOST_CHARACTERS:
        problem = f"a number of {len(node.value)} characters, expected at most {MOST_CHARACTERS}"
        raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
