"""What is recorded: quotas on six levels, and clients under, at and over them in steady streams and in bursts.

The two sample rings differ where traffic comes in pulses near the limit (a sample that overlaps the horizon
is kept whole by one and dropped by the other), so most of these clients are there. A batch is about a tenth of
a second's limit: some ten requests a second and client, which keeps a capture below a megabyte. The pulses'
periods do not divide the window: in step with it a millisecond would decide where samples open.
"""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.embedded.demo.load import Burst, ClientPlan
from kquota_spark.model.quotas.entities import DEFAULT, Name

WRITER = "setup"
USERS = {name: f"{name}-login" for name in (WRITER, "alice", "bob", "carol", "dave", "erin", "frank")}
TOPICS = {"orders": 2, "history": 2}
SECONDS = 92.0
EDIT_AFTER_S = 45.0
_START_S = 1.0  # a broker acts on the quotas 95 ms after ZooKeeper has them


class Quota(NamedTuple):
    """Limits of one entity by Kafka's key."""

    user: Name | None
    client_id: Name | None
    limits: dict[str, int]


QUOTAS = (
    Quota("alice", "etl", {"producer_byte_rate": 200_000}),
    Quota("alice", DEFAULT, {"producer_byte_rate": 90_000}),
    Quota("bob", None, {"producer_byte_rate": 160_000, "consumer_byte_rate": 250_000}),
    Quota(DEFAULT, "shared", {"producer_byte_rate": 120_000}),
    # One key each, so that both have clients that nothing above them takes away.
    Quota(DEFAULT, None, {"consumer_byte_rate": 180_000}),
    Quota(None, "legacy", {"producer_byte_rate": 70_000}),
    Quota(None, DEFAULT, {"producer_byte_rate": 60_000}),
)
EDIT = Quota("bob", None, {"producer_byte_rate": 80_000})


def history() -> list[ClientPlan]:
    """What the consumers will read; written before there are quotas.

    A thousand requests, so that the broker has compiled its code when it matters: its first seconds have pauses
    of tens of ms, which no log tells.
    """
    return [
        ClientPlan(
            "produce",
            WRITER,
            "history",
            1_000_000,
            user=WRITER,
            partitions=(0, 1),
            batch_bytes=8_000,
            stop_s=10.0,
        )
    ]


def clients() -> list[ClientPlan]:
    """The load; limits are in the comments."""
    return [
        _steady("alice", "etl", 400_000, batch_bytes=16_000),  # twice its 200 kB/s
        _steady("alice", "adhoc", 88_000, batch_bytes=8_000),  # just under 90 kB/s, headers included
        _steady("bob", "ingest", 150_000, batch_bytes=12_000),  # under its 160 kB/s, until that is cut to 80
        _steady("carol", "legacy", 42_000, batch_bytes=6_000),  # these two share 70 kB/s
        _steady("dave", "legacy", 42_000, batch_bytes=6_000, acks=1),
        _steady("carol", "shared", 160_000, batch_bytes=12_000, acks=1),  # over 120 kB/s
        _steady("erin", "shared", 117_000, batch_bytes=12_000),  # just under it
        _steady("frank", "sensor", 20_000, batch_bytes=5_000, acks=0),  # a third of 60 kB/s, as all below
        _bursts("dave", "nightly", 400_000, Burst(idle_s=20.0, send_s=4.0)),  # more than a cold bucket takes
        _bursts("erin", "exact", 708_000, Burst(idle_s=1.1, send_s=0.1)),  # 59 kB/s, its limit with headers
        _bursts("erin", "pulse", 300_000, Burst(idle_s=0.3, send_s=0.1)),  # 1.25 times, every 400 ms
        _bursts("frank", "tide", 313_000, Burst(idle_s=2.2, send_s=0.5)),  # 58 kB/s, just under
        _reader("bob", "reader", 500_000),  # twice its 250 kB/s
        _reader("carol", "reader", 120_000),  # under the 180 kB/s of users/<default>
        _reader("erin", "tail", 176_000),  # just under it
    ]


def _steady(user: str, client_id: str, rate: float, *, batch_bytes: int, acks: int = -1) -> ClientPlan:
    return ClientPlan(
        "produce", client_id, "orders", rate, user=user, partitions=(0, 1), start_s=_START_S, stop_s=SECONDS,
        acks=acks, batch_bytes=batch_bytes, linger_ms=1_000,
    )  # fmt: skip


def _bursts(user: str, client_id: str, rate: float, burst: Burst) -> ClientPlan:
    return ClientPlan(
        "produce", client_id, "orders", rate, user=user, partitions=(0, 1), start_s=_START_S, stop_s=SECONDS,
        batch_bytes=8_000, linger_ms=20, burst=burst,
    )  # fmt: skip


def _reader(user: str, client_id: str, rate: float) -> ClientPlan:
    return ClientPlan(
        "consume", client_id, "history", rate, user=user, partitions=(0, 1), start_s=_START_S, stop_s=SECONDS,
        batch_bytes=32_000,
    )  # fmt: skip
