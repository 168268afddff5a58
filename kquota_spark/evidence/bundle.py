"""Writes the evidence for one decision as a file that can be verified on another machine, without the tables."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from kquota_spark import __version__
from kquota_spark.errors import UserError
from kquota_spark.evidence.chain import chosen_place
from kquota_spark.evidence.lines import charges, offsets_of
from kquota_spark.evidence.masking import IsOwn, Mask, mask_of, masked_lines
from kquota_spark.evidence.parts import (
    LINES,
    RESULT,
    RULES,
    SAMPLES,
    TEXT,
    Rebuild,
    Subject,
    json_bytes,
    lines_bytes,
    rebuild_from,
    rules_of,
    rules_value,
    samples_value,
    text_of,
)
from kquota_spark.evidence.rebuilding import NAMES, Rebuilt, decision_bytes, rebuild
from kquota_spark.evidence.stored import Case
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.sent import Manager
from kquota_spark.schema.columns import SCHEMA_VERSION
from kquota_spark.store.reading import utc_text

FORM = 1
"""Version of the form of a bundle."""
MANIFEST = "manifest.json"
FROM_TABLE, FROM_TOPIC = "table requests", "the log topic"
"""Where the lines of a bundle come from; those of the topic equal the table's rows."""
_DATE = (1980, 1, 1, 0, 0, 0)
_DAY_MS = 86_400_000
"""Longer than any ring remembers, ms: gaps that ended before cannot matter."""
_OF_NAMES = ("bucket_user", "bucket_client_id", "rule", "users", "client_ids")
"""Columns of a decision that contain names."""


class Proof(NamedTuple):
    """The evidence for one decision.

    Attributes:
        case: the decision in the table and its inputs.
        rebuilt: the decision from these inputs.
        place: place of the explained request among the verdicts.
        is_equal: whether the rebuilt decision equals the table's, byte for byte.
    """

    case: Case
    rebuilt: Rebuilt
    place: int
    is_equal: bool

    @property
    def differing(self) -> list[str]:
        """Columns that differ from the table."""
        one, other = self.case.row, self.rebuilt.row
        return [name for name in NAMES if decision_bytes(one, [name]) != decision_bytes(other, [name])]


def prove(case: Case, is_own: IsOwn) -> Proof:
    """Rebuild a decision, and choose the request to explain.

    Args:
        case: the decision and its inputs.
        is_own: whether a user and client id belong to the tenant that asks.
    """
    rebuilt = rebuild(case.inputs)
    manager = case.inputs.manager
    own = {
        charge.point
        for charge in charges(case.lines, manager.broker_id, manager.quota_type)
        if charge.point.record_time_ms >= case.inputs.second_ms and is_own(charge.client[3], charge.client[4])
    }
    is_equal = decision_bytes(case.row) == decision_bytes(rebuilt.row)
    return Proof(case, rebuilt, chosen_place(rebuilt.verdicts, own), is_equal)


def lines_note(case: Case) -> str:
    """A sentence about the lines of the evidence."""
    first_ms = min((line["record_time_ms"] for line in case.lines), default=case.from_ms)
    count = len(case.lines)
    origin = f"{FROM_TOPIC}, as in {FROM_TABLE}" if case.is_from_topic else FROM_TABLE
    begin = f"{count:,} {'line' if count == 1 else 'lines'} from {origin}, since {utc_text(first_ms)}"
    if case.is_warm:
        return f"{begin}: before them there is none in the tables that the broker still remembers"
    return f"{begin}: the bucket was busy before them too, so samples may have opened at other times"


def bundle_of(proof: Proof, is_own: IsOwn) -> bytes:
    """The bundle as the bytes of a ZIP file; the same evidence gives the same bytes.

    Args:
        proof: the evidence; the decision equals the table's.
        is_own: whether a user and client id belong to the tenant. Other names are masked.

    Raises:
        UserError: the decision was not rebuilt as the table has it.
    """
    if not proof.is_equal:
        raise UserError(
            f"the decision was rebuilt, but differs from the table in {', '.join(proof.differing)}: no bundle is "
            "written for it"
        )
    mask = mask_of(proof.case.lines, is_own)
    subject, lines, rules = _inputs(proof, mask)
    found = rebuild_from(subject, lines, rules)
    _require_same(proof, found)
    note = lines_note(proof.case)
    parts = {
        LINES: lines_bytes(lines),
        RULES: json_bytes(rules),
        SAMPLES: json_bytes(samples_value(found)),
        RESULT: json_bytes(found.rebuilt.row),
        TEXT: text_of(found, note).encode(),
    }
    manifest = _manifest(proof, mask, subject, found, note)
    manifest["sha256"] = {name: sha256(data).hexdigest() for name, data in parts.items()}
    return _zipped({MANIFEST: json_bytes(manifest), **parts})


def _inputs(proof: Proof, mask: Mask) -> tuple[Subject, list[dict[str, Any]], dict[str, Any]]:
    """What the bundle is about, its lines and its rules, with the names masked."""
    case = proof.case
    manager, bucket, second_ms, _, configs, _ = case.inputs
    lines = masked_lines(case.lines, mask)
    clients = dict.fromkeys((line["user"], line["client_id"]) for line in case.lines)
    governor = case.known.governor
    book = governor.book if isinstance(governor, RuleGovernor) else None
    rules = [] if book is None else list(map(mask.rule, rules_of(clients, book)))
    gaps = [
        gap
        for gap in case.known.gaps.get(manager.broker_id, ())
        if gap[0] < second_ms + 1_000 and gap[1] > case.from_ms - _DAY_MS
    ]
    known = case.known._replace(gaps={manager.broker_id: gaps})
    value = rules_value(rules, known, configs, manager.broker_id)
    return Subject(manager, mask.bucket(bucket), second_ms, proof.place), lines, value


def _require_same(proof: Proof, found: Rebuild) -> None:
    """Check that masking has changed only names."""
    names = [name for name in NAMES if name not in _OF_NAMES]
    if decision_bytes(proof.rebuilt.row, names) != decision_bytes(found.rebuilt.row, names):
        raise UserError(
            "the decision cannot be rebuilt without the names of other tenants: no bundle is written"
        )


def _manifest(proof: Proof, mask: Mask, subject: Subject, found: Rebuild, note: str) -> dict[str, Any]:
    row = found.rebuilt.row
    return {
        "form": FORM,
        "kquota_spark": __version__,
        "schema": SCHEMA_VERSION,
        "ring": row["model_variant"],
        "rule": row["rule"],
        "rule_version": row["rule_version"],
        "cluster_id": subject.manager.cluster_id,
        "broker_id": subject.manager.broker_id,
        "quota_type": subject.manager.quota_type.value,
        "bucket_user": subject.bucket[0],
        "bucket_client_id": subject.bucket[1],
        "second_ms": subject.second_ms,
        "request": subject.place,
        "from_ms": proof.case.from_ms,
        "is_warm": proof.case.is_warm,
        "lines_from": FROM_TOPIC if proof.case.is_from_topic else FROM_TABLE,
        "lines_note": note,
        "offsets": [list(offsets) for offsets in offsets_of(proof.case.lines)],
        "masked_names": mask.masked,
    }


def subject_of(manifest: Mapping[str, Any]) -> Subject:
    """What a bundle is about; a mistake raises KeyError, ValueError or TypeError."""
    manager = Manager(manifest["cluster_id"], manifest["broker_id"], QuotaType(manifest["quota_type"]))
    bucket = manifest["bucket_user"], manifest["bucket_client_id"], None
    return Subject(manager, bucket, manifest["second_ms"], manifest["request"])


def _zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()
