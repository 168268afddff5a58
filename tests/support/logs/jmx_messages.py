"""Messages of collectors as literal bytes, for the tests of JMX."""

from __future__ import annotations

import json
from typing import Any

TIME_MS = 1_795_242_300_000
"""2026-11-21 06:25:00 UTC."""


def telegraf(name: str, fields: dict[str, Any], *, time: int = TIME_MS // 1_000, **tags: str) -> bytes:
    """A metric as Telegraf 1.37 writes it; a tag `client_id` stands for `client-id`."""
    named = {key.replace("client_id", "client-id"): value for key, value in tags.items()}
    metric = {"fields": fields, "name": name, "tags": {"broker": "1", **named}, "timestamp": time}
    return json.dumps(metric, separators=(",", ":")).encode()


def jolokia(pattern: str, value: dict[str, Any], time_ms: int = TIME_MS, broker_id: int = 1) -> bytes:
    """An answer to a read of a pattern, as our collector sends it."""
    answer = {
        "broker_id": broker_id,
        "time_ms": time_ms,
        "request": {"mbean": pattern, "type": "read"},
        "status": 200,
        "value": value,
    }
    return json.dumps(answer).encode()
