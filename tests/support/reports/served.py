"""The pages of `kquota serve` over tables in which one user's names and numbers are like no other's."""

from __future__ import annotations

import base64
import gzip
import html
import re
from pathlib import Path
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.serve.access import Access
from kquota_spark.cli.serve.app import app_of
from kquota_spark.cli.serve.contents import Contents
from kquota_spark.config.settings import Enforcement, Quotas, Serve, Settings
from kquota_spark.enforce.changes import Event, Evidence, LogEntry, Mode, Proposal, Quota, StepId
from kquota_spark.enforcement.edges.log import EnforcementLog
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.places import CONF
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    request,
    rule,
    second,
    source,
    usage,
    violation,
    write_table,
)

_Row = dict[str, Any]
VICTIM, CLIENT, REASON = "canary-victim", "canary-client", "canary-reason"
RATE, LIMIT, DELAY_MS = 7_654_321.0, 8_765_432.0, 6_543_000
CANARIES = {
    "user": (VICTIM,),
    "client id": (CLIENT,),
    "reason of a plan": (REASON,),
    "rate": ("7654321", "7,654,321", "7.7 MB/s", "7.65 MB/s"),
    "limit": ("8765432", "8,765,432", "8.8 MB/s", "8.77 MB/s"),
    "delay": ("6543000", "6,543,000", "1.8 h", "1.82 h", "109 min"),
}
"""What belongs to the victim alone, in every form in which a page may write it."""
PERIOD = "2026-11-21T05:40:00..2026-11-21T05:40:10"
TOKEN = "t0ken-of-the-test-that-nobody-guesses"
PROXY_SECRET = "s3cret-of-the-proxy-of-the-test"
NOW_MS = T0_MS + 20_000


def write_canary_tables(root: Path) -> Settings:
    """Ten seconds: alice's own bucket, the victim's own, and one that both share."""
    seconds = range(10)
    write_table(root, "usage", *(row for at_s in seconds for row in _used(at_s)))
    write_table(root, "decisions", *(decision(at_s, **of) for at_s in seconds for of in ({}, _OWN, _SHARED)))
    write_table(root, "violations", violation(2) | _OF_VICTIM | {"peak_rate_per_s": RATE})
    write_table(root, "requests", request(1), request(2) | {"user": VICTIM, "client_id": CLIENT})
    rules = (rule("users/alice", 3, user="alice", producer_byte_rate=1e6),
             rule(f"users/{VICTIM}", 3, user=VICTIM, producer_byte_rate=LIMIT))  # fmt: skip
    write_table(root, "quota_rules", source(10), *rules)
    write_table(root, "quota_changes", _change())
    settings = Settings(
        cluster_id="demo", tables=str(root), quotas=Quotas(source="file"),
        enforcement=Enforcement(policy_file=str(CONF / "policy.yaml")),
        serve=Serve(token=TOKEN, user_header="X-Forwarded-User", proxy_secret=PROXY_SECRET, operators=("operator",)),
    )  # fmt: skip
    EnforcementLog(settings).append([planned_step()])
    return settings


_OF_VICTIM: _Row = {"bucket_user": VICTIM, "rule": f"users/{VICTIM}", "limit_per_s": LIMIT, "users": [VICTIM],
                    "client_ids": [CLIENT]}  # fmt: skip
_OWN: _Row = {
    **_OF_VICTIM, "rate_per_s": RATE, "amount": int(RATE), "quota_used_percent": 187.0,
    "throttle_ms": DELAY_MS, "throttled_requests": 1, "total_throttle_ms": DELAY_MS,
    "observed_throttle_ms": DELAY_MS, "observed_throttled_requests": 1, "observed_total_throttle_ms": DELAY_MS,
}  # fmt: skip
_SHARED: _Row = {
    "bucket_user": "", "bucket_client_id": "shared", "rule": "clients/shared", "level": 5, "rate_per_s": RATE,
    "amount": int(RATE), "users": ["alice", VICTIM], "client_ids": ["shared"],
}  # fmt: skip


def _used(at_s: int) -> tuple[_Row, ...]:
    much: _Row = {"user": VICTIM, "amount": int(RATE), "rate_per_s": RATE}
    return (
        usage(at_s),
        usage(at_s, client_id="shared", amount=500),
        usage(at_s, **much, client_id="shared"),
        usage(at_s, **much, client_id=CLIENT, observed_throttle_ms=DELAY_MS),
    )


def _change() -> _Row:
    return {"cluster_id": "demo", "entity": f"users/{VICTIM}", "level": 3, "user": VICTIM, "version": 7,
            "key": "producer_byte_rate", "value": LIMIT, "previous_value": 1e6, "changed_at": second(1),
            "source": "zookeeper", "observed_at": second(1)}  # fmt: skip


def planned_step(at_ms: int = T0_MS + 10_000) -> LogEntry:
    """A plan for the victim that waits for approval."""
    evidence = Evidence(T0_MS, T0_MS + 10_000, 10, 10, 10, {"rate_per_s": RATE})
    quota = Quota(Entity(VICTIM), QuotaKey.PRODUCER_BYTE_RATE)
    proposal = Proposal(quota, LIMIT, RATE, "penalty", REASON, at_ms + 900_000, evidence)
    return LogEntry(StepId("p-1", 1), Event.PLANNED, at_ms, proposal, Mode.APPROVE, "enforcer")


def served(settings: Settings) -> Flask:
    """The application, as `kquota serve` puts it together."""
    contents = Contents(settings, SettingsPlace(None, None))
    return app_of(contents, Access(settings.serve, "127.0.0.1"))


def by_proxy(app: Flask) -> FlaskClient:
    """A client whose requests come through the proxy: they carry its secret."""
    client = app.test_client()
    client.environ_base["HTTP_X_KQUOTA_PROXY_SECRET"] = PROXY_SECRET
    return client


def readable(page: str) -> str:
    """A page with everything unpacked that it carries: escapes, JSON, gzipped data; without the text of plotly.js."""
    packed = re.findall(r'<script type="text/plain" id="bucket-index">([^<]*)</script>', page)
    unpacked = [gzip.decompress(base64.b64decode(text)).decode() for text in packed]
    rest = re.sub(r'(<script type="text/plain" id="\w[\w-]*">)[^<]*', r"\1", page)
    return "\n".join([rest, html.unescape(rest), *unpacked])
