"""Edits the list of exemptions in the text of a policy file; all else, comments included, stays as it is.

PyYAML forgets comments when it writes, so the place is found in the composed nodes and only that place of the text is
changed. What comes out is read again and compared with what was wanted: a form of YAML that was not thought of is
refused and never written.
"""

from __future__ import annotations

import copy
import re
import sys
from typing import Any

import yaml

from kquota_spark.bounded_yaml import BoundedLoader
from kquota_spark.errors import UserError

# ruamel.yaml drops comments inside brackets, and writes the name no (YAML 1.2) so that PyYAML (1.1) reads false.
KINDS = ("users", "client_ids", "patterns")
"""The lists below `exempt`."""
_PLAIN = re.compile(r"[A-Za-z][\w.-]*")


def with_exempt(text: str, kind: str, name: str) -> str:
    """The text with one name more in a list of `exempt`; the same text if it is there already.

    Raises:
        UserError: the file is written in a way that is better edited by hand.
    """
    data = _data(text)
    if name in _names(data, kind):
        return text
    wanted = copy.deepcopy(data)
    exempt = wanted.setdefault("exempt", {}) or {}
    exempt[kind] = [*(exempt.get(kind) or []), name]
    wanted["exempt"] = exempt
    return _checked(_added(text, kind, _scalar(name)), wanted)


def without_exempt(text: str, kind: str, name: str) -> str:
    """The text without a name in a list of `exempt`; the same text if it is not there.

    Raises:
        UserError: the file is written in a way that is better edited by hand.
    """
    data = _data(text)
    if name not in _names(data, kind):
        return text
    wanted = copy.deepcopy(data)
    wanted["exempt"][kind] = [other for other in wanted["exempt"][kind] if other != name]
    while (found := _place(text, kind, name)) is not None:
        text = _removed(text, *found)
    return _checked(text, wanted)


def _data(text: str) -> dict[str, Any]:
    data = yaml.load(text, BoundedLoader)  # noqa: S506 - a SafeLoader
    return {} if data is None else data


def _names(data: dict[str, Any], kind: str) -> list[str]:
    return list((data.get("exempt") or {}).get(kind) or [])


def _scalar(name: str) -> str:
    """The name as YAML reads it back, on one line."""
    if _PLAIN.fullmatch(name) and yaml.safe_load(name) == name:
        return name
    return yaml.safe_dump(name, default_style='"', allow_unicode=True, width=sys.maxsize).rstrip("\n")


def _checked(text: str, wanted: dict[str, Any]) -> str:
    try:
        if _data(text) == wanted:
            return text
    except yaml.YAMLError:
        pass
    raise UserError("its list of exemptions is written in a way that is not edited here: edit it by hand")


def _child(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value of a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _added(text: str, kind: str, name: str) -> str:
    exempt = _child(yaml.compose(text, BoundedLoader), "exempt")
    if exempt is None:
        end = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{end}\nexempt:\n  {kind}: [{name}]\n"
    _, lists = exempt
    found = _child(lists, kind)
    if found is None:
        return _with_list(text, lists, f"{kind}: [{name}]")
    _, names = found
    if not isinstance(names, yaml.SequenceNode):
        return _replaced(text, names, f" [{name}]")
    if not names.value:
        return _replaced(text, names, f"[{name}]")
    last = names.value[-1].end_mark.index
    if names.flow_style:
        return f"{text[:last]}, {name}{text[last:]}"
    # Behind the whole line: a comment belongs to the name before it.
    line_end = text.find("\n", last)
    line = f"\n{' ' * names.start_mark.column}- {name}"
    return f"{text}{line}\n" if line_end < 0 else f"{text[:line_end]}{line}{text[line_end:]}"


def _with_list(text: str, lists: yaml.Node, entry: str) -> str:
    if not isinstance(lists, yaml.MappingNode):
        return _replaced(text, lists, f" {{{entry}}}")
    if not lists.value:
        return _replaced(text, lists, f"{{{entry}}}")
    first = lists.value[0][0].start_mark
    more = ", " if lists.flow_style else "\n" + " " * first.column
    return f"{text[: first.index]}{entry}{more}{text[first.index :]}"


def _replaced(text: str, node: yaml.Node, by: str) -> str:
    return f"{text[: node.start_mark.index]}{by}{text[node.end_mark.index :]}"


def _place(text: str, kind: str, name: str) -> tuple[yaml.Node, yaml.SequenceNode, int] | None:
    """Key, list, and index of the name in it."""
    exempt = _child(yaml.compose(text, BoundedLoader), "exempt")
    found = _child(exempt[1], kind) if exempt else None
    if found is None or not isinstance(found[1], yaml.SequenceNode):
        return None
    index = next((index for index, node in enumerate(found[1].value) if node.value == name), None)
    return None if index is None else (found[0], found[1], index)


def _removed(text: str, key: yaml.Node, names: yaml.SequenceNode, index: int) -> str:
    node = names.value[index]
    start, end = node.start_mark.index, node.end_mark.index
    if names.flow_style:
        if index > 0:
            start = names.value[index - 1].end_mark.index
        elif len(names.value) > 1:
            end = names.value[1].start_mark.index
        return text[:start] + text[end:]
    line_end = text.find("\n", end)
    without = text[: text.rfind("\n", 0, start) + 1] + ("" if line_end < 0 else text[line_end + 1 :])
    if len(names.value) > 1:
        return without
    colon = text.index(":", key.end_mark.index) + 1
    return f"{without[:colon]} []{without[colon:]}"
