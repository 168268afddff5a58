"""A safe loader of YAML that a hostile file cannot keep busy: bounded depth and bounded numbers.

Python takes seconds to convert a number of thousands of digits. A number in base 60 (`1:59:59`) even takes time
quadratic in its length, and no limit of Python's holds for it.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml import MarkedYAMLError
from yaml.composer import Composer

_MOST_DEPTH = 50
"""Maximum number of lists and mappings around a value."""
MOST_CHARACTERS = 1_000
"""Maximum length of a number as it is written; the largest double has 309 digits."""


class BoundedLoader(Composer, yaml.CSafeLoader):
    """A safe loader that refuses deep nesting, and a long number before it converts it.

    libyaml reads, which takes a fifth of the time; Python composes: in C, deep nesting ends the process.

    Raises:
        yaml.MarkedYAMLError: nested deeper than 50, or a number is longer than 1,000 characters or beyond all doubles.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node, counted from the outermost one."""
        if self._depth > _MOST_DEPTH:
            event: Any = self.peek_event()  # there is one, or nothing would be composed
            raise MarkedYAMLError(problem=f"nested deeper than {_MOST_DEPTH}", problem_mark=event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def bounded_int(self, node: yaml.ScalarNode) -> int:
        """A whole number, checked for its length first."""
        _check(node)
        return int(self.construct_yaml_int(node))

    def bounded_float(self, node: yaml.ScalarNode) -> float:
        """A number with a fraction, likewise."""
        _check(node)
        try:
            return float(self.construct_yaml_float(node))
        except OverflowError as error:  # in base 60
            problem = "a number beyond all doubles"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error


BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.bounded_int)
BoundedLoader.add_constructor("tag:yaml.org,2002:float", BoundedLoader.bounded_float)


def _check(node: yaml.ScalarNode) -> None:
    if len(node.value) > MOST_CHARACTERS:
        problem = f"a number of {len(node.value)} characters, expected at most {MOST_CHARACTERS}"
        raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
