"""The plan of the demo: users with quotas on six levels, and clients under, near and over them."""

from __future__ import annotations

from kquota_spark.embedded.admin import alter_quota
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.embedded.demo.load import Burst, ClientPlan
from kquota_spark.formats.exchange import declared
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey

AUDITOR = "kquota"
USERS = {
    AUDITOR: "kquota-secret",
    **{name: f"{name}-secret" for name in ("alice", "bob", "carol", "dave", "erin")},
}
LOG_TOPIC = "kquota.request-log"
JMX_TOPIC = "kquota.jmx"
TOPICS = {LOG_TOPIC: 1, JMX_TOPIC: 1, "orders": 2, "history": 2}
_CONNECTION_S = 3.0


_PRODUCE, _CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
QUOTAS: dict[Entity, dict[AnyKey, float]] = {
    Entity(AUDITOR, None): {_PRODUCE: 100_000_000, _CONSUME: 100_000_000},
    Entity("alice", "etl"): {_PRODUCE: 300_000},
    Entity("alice", DEFAULT): {_PRODUCE: 200_000},
    Entity("bob", None): {_PRODUCE: 250_000, _CONSUME: 300_000},
    Entity(DEFAULT, None): {_CONSUME: 350_000},
    Entity(None, "dashboard"): {_PRODUCE: 220_000},
    Entity(None, DEFAULT): {_PRODUCE: 150_000},
}
"""Quotas on levels 1, 2, 3, 6, 7 and 8; each default has only one key, so that both defaults get traffic."""
OWNERS = """\
# Written by the demo; conf/owners.example.yaml has every key, commented.
objective_percent: 99.5
objective_days: 30
owners:
  - {name: platform, users: [kquota, kquota-broker]}
  - {name: shop, users: [alice, erin]}
  - {name: analytics, users: [bob, carol, dave]}
"""
HALVED = Entity(DEFAULT, None)
SHADOW_NAME = "half for readers"


def set_quotas(cluster: Cluster) -> None:
    """Set the quotas."""
    for entity, values in QUOTAS.items():
        limits = {key.value: value for key, value in values.items()}
        alter_quota(cluster, limits, user=entity.user, client_id=entity.client_id)


def shadow_file() -> str:
    """The text of the file of shadow quotas: half of one limit, which throttles a client that is under it now."""
    proposed: dict[AnyEntity, dict[AnyKey, float]] = {entity: {**values} for entity, values in QUOTAS.items()}
    proposed[HALVED] = {key: value / 2 for key, value in QUOTAS[HALVED].items()}
    return declared.write(proposed)


def change_quota(cluster: Cluster) -> str:
    """Make the edit in mid-run; return a text that describes it."""
    alter_quota(cluster, {"producer_byte_rate": 120_000}, user="bob")
    return "users/bob: producer_byte_rate 250,000 -> 120,000 B/s"


def clients(seconds: float, *, has_share_groups: bool = False) -> list[ClientPlan]:
    """The plans of all clients, with rates under and over their limits; with share groups also a share consumer."""

    def produce(user: str, client_id: str, rate: float, **more: object) -> ClientPlan:
        plan: dict[str, object] = {"partitions": (0, 1), "batch_bytes": 16_000, "stop_s": seconds, **more}
        return ClientPlan("produce", client_id, "orders", rate, user=user, **plan)  # type: ignore[arg-type]

    def consume(user: str, client_id: str, rate: float) -> ClientPlan:
        return ClientPlan(
            "consume", client_id, "history", rate, user=user, start_s=_CONNECTION_S, stop_s=seconds
        )

    # Over users/<default>: reads new records as fast as it can.
    shared = ClientPlan("share", "workers", "orders", 2_000_000, user="erin", stop_s=seconds)
    return [
        *([shared] if has_share_groups else []),
        produce("alice", "etl", 600_000),  # twice its own limit of 300 kB/s
        produce("alice", "adhoc", 196_000),  # just under users/alice/clients/<default>
        produce("bob", "ingest", 240_000),  # under its 250 kB/s, until that is cut to 120
        produce("carol", "dashboard", 130_000),  # these two share 220 kB/s
        produce("dave", "dashboard", 130_000, acks=1),
        produce("dave", "nightly", 900_000, burst=Burst(idle_s=20.0, send_s=4.0)),
        produce("erin", "sensor", 40_000, acks=0),  # well under
        produce("erin", "billing", 147_000),  # just under clients/<default>
        consume("bob", "reader", 700_000),  # over
        consume("carol", "reader", 200_000),  # under users/<default>
    ]


def history() -> list[ClientPlan]:
    """The plan of the producer that writes the records for the consumers."""
    return [ClientPlan("produce", "setup", "history", 5_000_000, user=AUDITOR, partitions=(0, 1), stop_s=3.0)]
