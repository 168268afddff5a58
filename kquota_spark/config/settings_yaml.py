"""The YAML of settings files: bounded, without duplicate keys, aliases and tags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kquota_spark.bounded_yaml import BoundedLoader
from kquota_spark.errors import UserError

_MAX_BYTES = 1_000_000
_MOST_VALUES = 100_000
"""Maximum number of keys and values in a settings file: each takes 8 us to read, so a refusal takes 2 s at most."""
_TEXT = "tag:yaml.org,2002:str"


class SettingsLoader(BoundedLoader):
    """Bounded YAML without duplicate keys, aliases and tags."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node; refuse aliases, tags, and more than the maximum number of nodes."""
        event: Any = self.peek_event()
        self._values += 1
        if self._values > _MOST_VALUES:
            problem = f"more than {_MOST_VALUES:,} keys and values, expected a settings file"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=event.start_mark)
        if event.tag not in (None, _TEXT):  # YAML's own error shows it: it may be a password without quotes
            problem = "a value that begins with ! is a tag, expected it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; each key has to be a name that occurs once."""
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problem = "a key is a list or mapping, expected a name"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            if key_node.value in seen:
                problem = f"key {key_node.value!r} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def yaml_of(path: Path) -> Any:
    """The parsed YAML of a file.

    Raises:
        UserError: the file cannot be read, is too large, or is not valid YAML for settings.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: larger than {_MAX_BYTES} bytes, expected a settings file")
        return yaml.load(path.read_text(encoding="utf-8"), Loader=SettingsLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not YAML in UTF-8"
        raise UserError(f"{path}: {where}{problem}") from error
    except ValueError as error:  # a value with the form of a date or a number that is not one: 2026-13-01
        raise UserError(f"{path}: {error}") from error
