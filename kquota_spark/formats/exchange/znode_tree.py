"""Quota nodes as ZooKeeper holds them: a JSON object of paths and payloads.

    {"/config/users/alice/clients/etl": {"version": 1, "config": {"producer_byte_rate": "1048576"}}}

Names are encoded as Kafka does, `<default>` is the default, payloads are objects or their texts, as dumps of ZooKeeper
have them. Nodes beside the quotas are passed over. User nodes also hold SCRAM credentials: they are never written, and
dropped when read.
"""

from __future__ import annotations

import json
from typing import Any

from kquota_spark.formats.exchange.checks import Reading, checked_text, writable
from kquota_spark.formats.exchange.documents import read_json
from kquota_spark.formats.znodes.nodes import ROOTS, decode_node, has_data, name_nodes
from kquota_spark.formats.znodes.writes import with_quotas
from kquota_spark.model.quotas.quota_set import QuotaSet

_CONFIG = "/config/"


def read(text: str) -> QuotaSet:
    """The quotas that brokers would read from such nodes; ValueError with one line a problem, without payloads."""
    document = read_json(checked_text(text))
    if not isinstance(document, dict):
        msg = 'expected one object of paths and payloads, {"/config/users/alice": {"version": 1, "config": {...}}}'
        raise ValueError(msg)
    reading = Reading()
    nodes = {path.removeprefix(_CONFIG): data for path, data in document.items() if _is_quota_node(path)}
    names = name_nodes(nodes)
    for path, problem in names.problems.items():
        reading.problem(_CONFIG + path, problem)
    for path, entity in names.entities.items():
        where = _CONFIG + path
        payload = decode_node(path, _payload(nodes[path]))
        if payload.problem is not None:
            reading.problem(where, payload.problem)
            continue
        for key, value in payload.values.items():
            reading.add(where, entity, key.value, value)
    return reading.quotas()


def _is_quota_node(path: str) -> bool:
    below = path.removeprefix(_CONFIG)
    return path.startswith(_CONFIG) and below.split("/")[0] in ROOTS and has_data(below)


def _payload(data: Any) -> bytes | None:
    if data is None:
        return None
    return data.encode(errors="replace") if isinstance(data, str) else json.dumps(data).encode()


def write(quotas: QuotaSet) -> str:
    """The nodes, one a line; ValueError for a name or value that nothing can hold."""
    lines = [
        f"\n{json.dumps(_CONFIG + str(entity))}: {(with_quotas(entity, None, values) or b'').decode()}"
        for entity, values in writable(quotas)
    ]
    return f"{{{','.join(lines)}\n}}\n"
