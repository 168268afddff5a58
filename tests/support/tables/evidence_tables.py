"""Tables of captures for evidence: with the gaps of their logs, and with names that no other text contains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kquota_spark.audit.gaps.log_gaps import record_gaps
from kquota_spark.config.settings import Settings
from kquota_spark.evidence.rebuilding import NAMES
from kquota_spark.model.quotas.entities import Entity, Name
from kquota_spark.model.quotas.rules import QuotaChange
from kquota_spark.schema.harm import HAS_VERDICT
from kquota_spark.store.creation import create_tables
from kquota_spark.store.reading import Tables, open_tables
from tests.support.logs.captures import Capture
from tests.support.tables.capture_tables import write_capture

USER_CANARY, CLIENT_CANARY = "canary-u-", "canary-c-"
CANARY = re.compile(rb"canary-[uc]-[\w.-]+")
_USER, _CLIENT = re.compile(rb"User:([\w.-]+)"), re.compile(rb'"clientId":"([^"]+)"')
_DECISIONS = f"""
select {", ".join(f'"{name}"' for name in NAMES if name != "second_ms")}, epoch_ms(decisions.second) as second_ms
from decisions where {HAS_VERDICT}
order by broker_id, quota_type, bucket_user, bucket_client_id, decisions.second
"""


class Evidence(NamedTuple):
    """Tables of a capture, opened, and all their decisions."""

    settings: Settings
    tables: Tables
    rows: list[dict[str, Any]]


@contextmanager
def evidence_tables(root: Path, capture: Capture, *, has_canaries: bool = False) -> Iterator[Evidence]:
    """Write and open the tables of a capture.

    Args:
        root: of the tables.
        capture: of tests/data.
        has_canaries: whether each name of a user and client id becomes a canary.
    """
    if has_canaries:
        settings = write_capture(root, capture, lines=_canary_lines, quotas=_canary_quotas)
    else:
        settings = write_capture(root, capture)
    create_tables(settings)
    record_gaps(settings.changed(checkpoints=str(root / "checkpoints")))
    with open_tables(settings, "decisions") as tables:
        rows = [{name: row[name] for name in NAMES} for row in tables.query(_DECISIONS).dicts()]
        yield Evidence(settings, tables, rows)


def _canary_lines(lines: list[bytes]) -> list[bytes]:
    return [
        _CLIENT.sub(
            rb'"clientId":"%b\1"' % CLIENT_CANARY.encode(),
            _USER.sub(rb"User:%b\1" % USER_CANARY.encode(), line),
        )
        for line in lines
    ]


def _canary_quotas(changes: list[QuotaChange]) -> list[QuotaChange]:
    found = []
    for change in changes:
        entity = change.entity
        if isinstance(entity, Entity):
            entity = Entity(_canary(entity.user, USER_CANARY), _canary(entity.client_id, CLIENT_CANARY))
        found.append(replace(change, entity=entity))
    return found


def _canary(name: Name, canary: str) -> Name:
    return f"{canary}{name}" if isinstance(name, str) else name
