"""Findings on the logs of real brokers: all true by their READMEs, and no client of Java, Python or C is accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.findings.findings import Kind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.reports.clients.findings import findings
from tests.support.logs.captures import KRAFT41, ZK39_PLAIN, Capture
from tests.support.tables.capture_tables import write_capture

EMPTY, SHARED, EDIT = Kind.EMPTY_CLIENT_ID, Kind.SHARED_BUCKET, Kind.QUOTA_EDIT
NOBODY = "user {}, client id (empty)"


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        # carol sends an empty client id under quotas of client ids; two users share "legacy" (level 7).
        (
            Capture("zk39-levels", RateConfig(), 95),
            {(EMPTY, NOBODY.format("carol")): 2, (SHARED, "client id legacy"): 2},
        ),
        # Quotas are set by 4 requests in one hour, which stand in the log twice (forwarded).
        (
            Capture("kraft39", RateConfig()),
            {(EMPTY, NOBODY.format("carol")): 2, (SHARED, "client id legacy"): 2, (EDIT, "user admin"): 1},
        ),
        (KRAFT41, {(SHARED, "client id legacy"): 1, (EDIT, "user kquota-broker"): 1}),
        (ZK39_PLAIN, {(EMPTY, NOBODY.format("ANONYMOUS")): 2}),
        (Capture("jmx-telegraf", RateConfig(), 95), {(Kind.UNMETERED, "user ANONYMOUS, client id free"): 1}),
    ],
    ids=lambda value: value.name if isinstance(value, Capture) else "",
)
def test_findings_of_a_real_log(
    tmp_path: Path, capture: Capture, expected: dict[tuple[Kind, str], int]
) -> None:
    found: dict[tuple[Kind, str], int] = {}
    for finding in findings(write_capture(tmp_path, capture)):
        found[finding.kind, finding.subject] = found.get((finding.kind, finding.subject), 0) + 1
    assert found == expected
