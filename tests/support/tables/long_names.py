"""Tables of the report with names beside them that are long and alike: those of mTLS, and of one application."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.store.rows import entity_columns
from tests.support.tables.report_tables import write_report_tables
from tests.support.tables.table_rows import decision, second, usage, violation, write_table

DN = "CN=alice,OU=payments,O=Example Bank International Holdings,L=Frankfurt,C=DE"
NAMES = (
    DN,
    DN.replace("alice", "bob"),
    DN.replace("payments", "billing"),  # the same CN
    DN.replace("Frankfurt", "Paris"),  # the same CN and OU
    "service-account-of-the-team-that-owns-the-billing-pipeline-in-production-a-eu-west",
    "service-account-of-the-team-that-owns-the-billing-pipeline-in-production-b-eu-west",
)
CLIENT_IDS = (
    "connector-consumer-orders-sink-jdbc-postgres-analytics-reader-eu-0-0123456789abcdef",
    "connector-consumer-orders-sink-jdbc-postgres-analytics-writer-eu-0-0123456789abcdef",
)


def write_long_names(root: Path) -> None:
    """The report's tables with a second of each user and client id, throttled, and an episode of it."""
    write_report_tables(root)
    pairs = [(user, client_id) for user in NAMES for client_id in CLIENT_IDS]
    own = {
        "limit_per_s": 1e4, "rate_per_s": 2.5e6, "quota_used_percent": 25_000.0, "requests": 12_345,
        "throttle_ms": 2_029, "observed_throttle_ms": 280_032, "throttled_requests": 1_234,
        "observed_throttled_requests": 1_235, "total_throttle_ms": 28_003_200,
        "observed_total_throttle_ms": 28_003_201,
    }  # fmt: skip
    write_table(
        root,
        "decisions",
        *(
            decision(599, bucket_user=user, bucket_client_id=client_id, users=[user], client_ids=[client_id],
                     level=1, rule=str(Entity(user, client_id)), **own)
            for user, client_id in pairs
        ),
    )  # fmt: skip
    write_table(
        root,
        "usage",
        *(
            usage(599, user=user, client_id=client_id, amount=2_500_000_000, requests=1_234_567,
                  rate_per_s=2.5e9, observed_throttle_ms=280_032)
            for user, client_id in pairs
        ),
    )  # fmt: skip
    write_table(
        root,
        "violations",
        *(
            violation(590, 7_325, episode_id=f"{user} {client_id}", bucket_user=user, bucket_client_id=client_id,
                      rule=str(Entity(user, client_id)), observed_throttled_ms=280_032,
                      observed_throttled_requests=2_564, observed_longest_throttle_ms=2_029)
            for user, client_id in pairs
        ),
    )  # fmt: skip
    times = {"valid_from": second(-7_200), "version": 7, "source": "zookeeper", "cluster_id": "demo"}
    write_table(
        root,
        "quota_rules",
        *({**times, **entity_columns(Entity(*pair)), "producer_byte_rate": 1e4} for pair in pairs),
    )


def quotas_file(path: Path, limit: int) -> Path:
    """A quotas.yaml with a value for each of the names."""
    lines = [
        f'- {{user: "{user}", client_id: "{client_id}", type: producer_byte_rate, value: {limit}}}\n'
        for user in NAMES
        for client_id in CLIENT_IDS
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path
