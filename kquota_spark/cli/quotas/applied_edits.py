"""Edits of a cluster's quotas as they are made: one request an entity, and what became of each."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from kquota_spark.cli.text.page import say
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import AnyEntity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.quotas.cluster_quotas import ClusterQuotas

_PROGRESS_EVERY_S = 2.0


class Status(Enum):
    """What became of the edits of an entity; the value is what tables and JSON say."""

    PLANNED = "planned"
    APPLIED = "applied"
    ACCEPTED = "would be applied"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_TRIED = "not tried"

    @property
    def is_done(self) -> bool:
        """Nothing is left to do, or would be."""
        return self in (Status.APPLIED, Status.ACCEPTED)


@dataclass(frozen=True, slots=True)
class EntityResult:
    """What became of all edits of one entity, which stand or fall together; `detail` is the cluster's words."""

    entity: AnyEntity
    edits: tuple[QuotaEdit, ...]
    status: Status
    detail: str = ""


def apply_edits(
    cluster: ClusterQuotas, edits: Iterable[QuotaEdit], *, validate_only: bool = False
) -> list[EntityResult]:
    """Make edits in place, one request an entity; with `validate_only` only ask whether the cluster would take them.

    What the cluster refuses does not stop the others; only what would just remove is not tried once a value was
    refused, because it may be what limits meanwhile those whom the value is for. After no answer the rest is not
    tried: it would wait as long. Nor after Ctrl-C, which must not leave a person without knowing how far it came.
    """
    waiting = list(by_entity(edits))
    done = Status.ACCEPTED if validate_only else Status.APPLIED
    results: list[EntityResult] = []
    told_s = time.monotonic()
    failed = has_refused_value = False
    for entity, of_one in waiting:
        has_value = any(edit.after is not None for edit in of_one)
        if failed or (has_refused_value and not has_value):
            results.append(EntityResult(entity, of_one, Status.NOT_TRIED))
            continue
        try:
            refusal = cluster.alter(
                entity, {edit.key: edit.after for edit in of_one}, validate_only=validate_only
            )
        except (UserError, KeyboardInterrupt) as error:
            unknown = "" if validate_only else f"; whether {entity} was altered is not known"
            words = str(error) or f"interrupted{unknown}"
            results.append(EntityResult(entity, of_one, Status.FAILED, words))
            failed = True
            continue
        has_refused_value |= has_value and refusal is not None
        status = done if refusal is None else Status.REFUSED
        results.append(EntityResult(entity, of_one, status, refusal or ""))
        if time.monotonic() - told_s > _PROGRESS_EVERY_S and sys.stderr.isatty():
            say(f"{len(results):,} of {len(waiting):,} entities", sys.stderr)
            told_s = time.monotonic()
    return results


def exit_code(results: Iterable[EntityResult]) -> int:
    """0 if all is done, or would be; 1 if an entity was refused or failed."""
    return 0 if all(result.status.is_done for result in results) else 1


def by_entity(edits: Iterable[QuotaEdit]) -> Iterator[tuple[AnyEntity, tuple[QuotaEdit, ...]]]:
    """The edits of each entity, which stand together already."""
    for entity, of_one in groupby(edits, key=lambda edit: edit.entity):
        yield entity, tuple(of_one)
