"""What lies in conf/ for running the job: it parses, and names only metrics and options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from kquota_spark.config.settings import Metrics, Settings
from kquota_spark.io.audit_metrics import AuditMetrics
from kquota_spark.io.progress import Progress
from tests.unit.exposition_format import parsed_exposition

CONF = Path(__file__).parents[2] / "conf"


def _progress() -> Progress:
    """A query that has something to say about everything."""
    progress = Progress(
        rows=10, batches=1, last_seen_s=5.0, watermark_s=4.0, newest_s=4.5,
        counted={
            "rows": 9, "unreadable": 1, "out_of_time": 1, "late": 1, "rules_behind": 1,
            "judged_produce": 8, "agreeing_produce": 7, "judged_fetch": 0, "agreeing_fetch": 0,
        },
    )  # fmt: skip
    progress.end_offset = {"t": {"0": 1}}
    progress.latest_offset = {"t": {"0": 3}}
    return progress


def test_the_alerts_ask_for_metrics_that_the_job_has() -> None:
    metrics = AuditMetrics(Settings(cluster_id="c", metrics=Metrics(port=1)))
    metrics.update({"ingest": _progress(), "judge": _progress()}, {"ingest": True, "judge": True})
    scraped = parsed_exposition(metrics.scrape())
    # These two come from the tables.
    known = set(scraped) | {"kquota_audit_input_lag_versions", "kquota_audit_quota_snapshot_age_seconds"}
    rules = yaml.safe_load((CONF / "prometheus-auditor.rules.yaml").read_text(encoding="utf-8"))
    alerts = rules["groups"][0]["rules"]
    assert [alert["alert"] for alert in alerts] == [
        "KquotaAuditDownOrLagging",
        "KquotaAuditUnreadableLines",
        "KquotaAuditAgreementDropped",
        "KquotaAuditQuotasStale",
    ]
    asked = {name for alert in alerts for name in re.findall(r"kquota_audit_\w+", alert["expr"])}
    assert asked - known == set()
    assert scraped["kquota_audit_input_lag_offsets"][(("cluster_id", "c"), ("query", "ingest"))] == 2.0
    # A quota type that was not judged is left out: no division of 0 by 0.
    assert scraped["kquota_audit_requests_agreeing_total"] == {
        (("cluster_id", "c"), ("quota_type", "produce")): 7.0
    }


def test_a_query_that_has_ended_stays_with_its_figures_and_is_not_active() -> None:
    metrics = AuditMetrics(Settings(cluster_id="c"))
    metrics.update({"ingest": _progress()}, {"ingest": True})
    metrics.update({"measure": _progress()}, {"measure": True})
    scraped = parsed_exposition(metrics.scrape())
    of = {query: (("cluster_id", "c"), ("query", query)) for query in ("ingest", "measure")}
    assert scraped["kquota_audit_query_active"] == {of["ingest"]: 0.0, of["measure"]: 1.0}
    assert scraped["kquota_audit_input_rows_total"] == {of["ingest"]: 10.0, of["measure"]: 10.0}
