"""QUOTA_EDIT: who changed which quotas, from the AlterClientQuotas requests in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.model.quotas.entities import Entity, IpEntity, parse_entity


@dataclass(frozen=True, slots=True)
class QuotaEdit:
    """One key of one entity in one request; `value` is None where the key was removed."""

    entity: str
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class EditRequest:
    """One AlterClientQuotas request: when, by whom, what."""

    time_ms: int
    broker_id: int
    user: str
    client_id: str
    edits: tuple[QuotaEdit, ...]


def quota_edits(requests: Iterable[EditRequest]) -> list[Finding]:
    """One finding a request that asked for any edit; an edit of the editor's own quota is a warning."""
    return [_finding(request) for request in requests if request.edits]


def _finding(request: EditRequest) -> Finding:
    own = [edit for edit in request.edits if _is_of(request.user, edit.entity)]
    shown = ", ".join(map(_edit_text, (own or request.edits)[:3]))
    more = f" and {len(request.edits) - 3} more" if len(request.edits) > 3 else ""
    whose = (
        "its own quota" if own else f"{len(request.edits)} {'quota' if len(request.edits) == 1 else 'quotas'}"
    )
    return Finding(
        Kind.QUOTA_EDIT,
        Severity.WARNING if own else Severity.INFO,
        f"user {request.user}",
        f"asked to change {whose}: {shown}{more}",
        "see whether that was agreed; AlterConfigs on the cluster allows it" if own else "",
        tuple(
            {
                "time_ms": request.time_ms,
                "broker_id": request.broker_id,
                "client_id": request.client_id,
                "entity": edit.entity,
                "key": edit.key,
                "value": edit.value,
            }
            for edit in request.edits
        ),
    )


def _is_of(user: str, entity: str) -> bool:
    try:
        found: Entity | IpEntity = parse_entity(entity)
    except ValueError:
        return False
    return isinstance(found, Entity) and found.user == user


def _edit_text(edit: QuotaEdit) -> str:
    return f"{edit.entity} {edit.key} {'removed' if edit.value is None else f'{edit.value:,.0f}'}"
