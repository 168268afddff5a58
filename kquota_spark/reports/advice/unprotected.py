"""Traffic that is not metered as its owner may expect: the findings about rules and names in the period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kquota_spark.findings.client_findings import IdSeen, unstable_client_ids
from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.findings.rule_findings import rule_findings
from kquota_spark.model.compare.observed_clients import Observed
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import Unprotected

KINDS = (
    Kind.UNMETERED,
    Kind.EMPTY_CLIENT_ID,
    Kind.SHARED_BUCKET,
    Kind.MIXED_IDENTIFICATION,
    Kind.UNSTABLE_CLIENT_ID,
    Kind.MISENCODED_ENTITY,
)
_OF_TENANT = {Kind.UNMETERED, Kind.EMPTY_CLIENT_ID}
"""Kinds of findings that are about one user alone."""
_ORDER = (Severity.HIGH, Severity.WARNING, Severity.INFO)

_SHARED = """
select quota_type, bucket_client_id, shared_with from mine where shared_with > 0
  and (quota_type, bucket_client_id) in (select (quota_type, client_id) from used)
order by shared_with desc, quota_type, bucket_client_id
"""


def unprotected(scope: Scope, observed: Observed, ids: Sequence[IdSeen]) -> tuple[list[Unprotected], int]:
    """The most severe findings, and how many more there are; on a tenant's page only those about the tenant alone."""
    if scope.tenant is not None:
        found = [*_of_tenant(observed), *_shared(scope)]
    else:
        all_of_them = [*rule_findings(observed), *unstable_client_ids(ids, observed.from_ms, observed.to_ms)]
        kept = [one for one in all_of_them if one.kind in KINDS]
        kept.sort(key=lambda one: (_ORDER.index(one.severity), KINDS.index(one.kind)))
        found = [_shown(one) for one in kept]
    return found[: scope.top], max(0, len(found) - scope.top)


def _shown(one: Finding) -> Unprotected:
    return Unprotected(one.kind.value, one.severity.value, one.subject, one.sentence, one.advice)


def _of_tenant(observed: Observed) -> Iterator[Unprotected]:
    for one in rule_findings(observed):
        if one.kind is Kind.UNMETERED:
            (row,) = one.evidence
            sentence = f"no quota of {row['quota_type']} holds for it: {row['bytes']:,} bytes"
            yield Unprotected(one.kind.value, one.severity.value, one.subject, sentence, one.advice)
        elif one.kind in _OF_TENANT:
            yield _shown(one)


def _shared(scope: Scope) -> Iterator[Unprotected]:
    for row in scope.rows(_SHARED):
        others = row["shared_with"]
        yield Unprotected(
            Kind.SHARED_BUCKET.value,
            Severity.INFO.value,
            f"client id {row['bucket_client_id'] or '(empty)'}",
            f"its {row['quota_type']} bucket is shared with {others:,} other user{'s' if others > 1 else ''}: "
            "each of them can throttle the others",
            "ask for a quota of your own, or use a client id that nobody else has",
        )
