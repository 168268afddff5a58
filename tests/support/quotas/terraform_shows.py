"""What `terraform show -json` prints of a file that we wrote, read without our own code."""

from __future__ import annotations

import json
import re
from typing import Any

_RESOURCE = re.compile(
    r'^resource "kafka_quota" "(?P<label>\w+)" \{\n'
    r'  entity_type = "(?P<type>[a-z-]+)"\n'
    r"(?:  entity_name = (?P<name>\"[^\n]*\")\n)?"
    r"  config = \{\n(?P<config>(?:    \w+ += [0-9.]+\n)*)  \}\n\}\n\n?",
    re.MULTILINE,
)


def terraform_shows(text: str) -> str:
    """The state after `terraform apply` of a file of ours; AssertionError if something else stands in it."""
    assert _RESOURCE.sub("", text) == ""
    return state([_resource(found) for found in _RESOURCE.finditer(text)])


def state(resources: list[dict[str, Any]]) -> str:
    """A state with these resources in its root module."""
    root = {"root_module": {"resources": resources}} if resources else {}
    return json.dumps({"format_version": "1.0", "terraform_version": "1.13.3", "values": root})


def resource(label: str, kind: str, name: str | None, config: dict[str, float]) -> dict[str, Any]:
    """One resource, as a state has it."""
    return {
        "address": f"kafka_quota.{label}",
        "mode": "managed",
        "type": "kafka_quota",
        "name": label,
        "schema_version": 0,
        "values": {"config": config, "entity_name": name, "entity_type": kind, "id": f"{name}|{kind}"},
        "sensitive_values": {"config": {}},
    }


def _resource(found: re.Match[str]) -> dict[str, Any]:
    lines = (line.split("=") for line in found["config"].splitlines())
    config = {key.strip(): float(value) for key, value in lines}
    name = None if found["name"] is None else _plain(found["name"])
    return resource(found["label"], found["type"], name, config)


def _plain(quoted: str) -> str:
    r"""A text of HCL: `\U0001f600` is a character, `$${` is `${`; for the rest JSON has the same escapes."""

    def wide(escape: re.Match[str]) -> str:
        return escape[0] if escape[1] is None else json.dumps(chr(int(escape[1], 16)))[1:-1]

    with_json = re.sub(r"\\U([0-9a-f]{8})|\\.", wide, quoted)
    # Only a template's own signs are doubled: an escaped dollar is none, so they are halved before the escapes.
    assert not re.search(r"(?<![$%])[$%]\{", with_json)
    return str(json.loads(re.sub(r"([$%])\1\{", r"\1{", with_json)))
