"""The report for programs: its dataclasses as plain values, everything that was gathered and in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from kquota_spark.reports.scope.audit_report import AuditReport


def plain_report(report: AuditReport) -> dict[str, Any]:
    """Names and values of `AuditReport`; a number that JSON does not have is null, ids of brokers are texts."""
    return {one.name: _plain(getattr(report, one.name)) for one in fields(report)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
