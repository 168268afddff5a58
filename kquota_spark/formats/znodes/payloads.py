"""The JSON of ZooKeeper's configuration nodes, read the way a broker reads it.

Source: Kafka 3.9 `ZkData.ConfigEntityZNode`, `Json`, `DecodeJson`. No problem text quotes a payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Never


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node's `config`; empty, with the reason in `problem`, where brokers read none.

    `is_refused`: brokers do not read it as empty but fail, so a running one goes on with what it had.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    is_refused: bool = False


def read_config(data: bytes | None) -> NodeConfig:
    """Read the data of a node; one without data has an empty config, and that is no problem."""
    if not data:
        return NodeConfig()
    try:
        document = first_json(data)
    except ValueError:
        return NodeConfig(problem="not JSON: brokers read it as no quotas")
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        return NodeConfig(problem="no object config: brokers read it as no quotas")
    if not all(isinstance(value, str) for value in config.values()):
        refusal = "a value in config is not a JSON text: brokers refuse the node and keep the quotas they had"
        return NodeConfig(problem=refusal, is_refused=True)
    return NodeConfig(config)


def first_json(data: bytes) -> Any:
    """The first JSON value, like Jackson's `readTree`, which does not look at what follows it.

    Raises:
        ValueError: the data does not begin with a JSON value.
    """
    text = data.decode(json.detect_encoding(data))
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    try:
        return decoder.raw_decode(text.lstrip(" \t\r\n"))[0]
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _no_constant(name: str) -> Never:
    msg = f"{name} is not JSON"
    raise ValueError(msg)
