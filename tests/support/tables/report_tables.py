"""Tables of ten minutes of a cluster with hostile names, as the report reads them: literal waves, nothing random.

Who is there: alice, throttled at 1 MB/s until her limit was doubled; a user whose name is a script, near the limit;
a client id that two users share; traffic without a limit and without a client id; a bucket that only JMX tells of;
quotas edited, enforced, overridden and restored; lines that could not be read, and a gap in a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from kquota_spark.config.settings import Settings
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.store.rows import entity_columns
from tests.support.tables.table_rows import (
    T0_MS,
    decision,
    heartbeat,
    request,
    second,
    source,
    unreadable,
    usage,
    violation,
    write_table,
)

LENGTH_S = 600
FROM_MS, TO_MS = T0_MS, T0_MS + LENGTH_S * 1_000
MADE_AT_MS = TO_MS + 60_000

SCRIPT = "<script>alert('x')</script>"
QUOTED = """O'Brien "the & quoted" \\ $(reboot)"""
EMOJI = "Zoë 🦊 👩‍👩‍👧"
RIGHT_TO_LEFT = "\u202eevil\u202c שלום عليكم"
LONG = "long-" + "x" * 295
FORMULA = '=HYPERLINK("http://x")|\' {{7*7}} %s\n\ttab'
HOSTILE = (SCRIPT, QUOTED, EMOJI, RIGHT_TO_LEFT, LONG, FORMULA)
SHARED = "shared </td><img src=x onerror=alert(1)>"

_BOB = Entity("bob", "batch")
_Row = dict[str, Any]
_LIMITS: dict[Entity, tuple[tuple[int, float], ...]] = {
    Entity(user="alice"): ((0, 1e6), (300, 2e6)),
    _BOB: ((0, 8e6), (420, 5e6)),
    **{Entity(user=name): ((0, 1e4),) for name in HOSTILE},
    Entity(user=SCRIPT): ((0, 2e4), (120, 1e4)),
    Entity(user=QUOTED): ((0, 3e4), (240, 1e4)),
    Entity(user=EMOJI): ((0, 1e4), (200, 5e4), (500, 1e4)),
}
"""producer_byte_rate of each entity from a second on; what was there at 0 is two hours old."""


def write_report_tables(root: Path) -> Settings:
    """Write all tables below a folder; the settings that read them."""
    write_table(root, "usage", *_usage())
    write_table(root, "decisions", *_decisions())
    write_table(root, "violations", *_violations())
    write_table(root, "requests", *_requests())
    write_table(root, "quota_rules", source(LENGTH_S), *_rules())
    write_table(root, "quota_changes", *_changes())
    write_table(root, "enforcement_log", *_enforcement())
    write_table(root, "log_gaps", *_gaps())
    write_table(root, "broker_configs", *(_broker(broker_id) for broker_id in (1, 2)))
    return Settings(cluster_id="demo", tables=str(root))


def _limit(entity: Entity, at_s: int) -> float:
    return next(limit for from_s, limit in reversed(_LIMITS[entity]) if from_s <= at_s)


def _usage() -> Iterator[_Row]:
    for at_s in range(LENGTH_S):
        for broker_id, amount in ((1, 1_100_000), (2, 300_000 + 1_000 * at_s)):
            yield usage(at_s, broker_id=broker_id, amount=amount, rate_per_s=float(amount), requests=20,
                        observed_throttle_ms=200 if broker_id == 1 and at_s < 300 else 0)  # fmt: skip
        yield usage(at_s, quota_type="request", amount=150_000, rate_per_s=150_000.0, requests=20)
        if at_s % 3 == 0:
            yield usage(at_s, user="bob", client_id="batch", amount=40_000, rate_per_s=40_000.0)
            yield usage(at_s, quota_type="fetch", user="bob", client_id="reader", amount=2_000_000,
                        rate_per_s=2_000_000.0)  # fmt: skip
        if at_s % 5 == 0:
            for user in ("bob", "carol"):
                yield usage(at_s, user=user, client_id=SHARED, amount=90_000, rate_per_s=90_000.0,
                            observed_throttle_ms=300 if user == "bob" else 0)  # fmt: skip
        if at_s % 10 == 0:
            yield usage(at_s, user="carol", client_id="", amount=30_000, rate_per_s=30_000.0)
            for rank, name in enumerate(HOSTILE):
                yield usage(at_s, broker_id=1 + rank % 2, user=name, client_id=name, amount=50_000 + rank,
                            rate_per_s=50_000.0 + rank)  # fmt: skip
        if at_s % 30 == 0:
            yield usage(at_s, broker_id=3, quota_type="fetch", user="jmx-reader", client_id="", amount=None,
                        requests=None, duplicates=None, rate_per_s=500_000.0, observed_throttle_ms=None,
                        source="jmx")  # fmt: skip


def _decisions() -> Iterator[_Row]:
    for at_s in range(LENGTH_S):
        yield from _of_alice(at_s)
        if at_s % 3 == 0:
            yield decision(at_s, bucket_user="bob", bucket_client_id="batch", rule=str(_BOB), level=1,
                           amount=40_000, limit_per_s=_limit(_BOB, at_s), rate_per_s=13e3, users=["bob"],
                           quota_used_percent=100 * 13e3 / _limit(_BOB, at_s), client_ids=["batch"])  # fmt: skip
            yield decision(at_s, quota_type="fetch", bucket_user="", bucket_client_id="reader", level=None,
                           rule=None, limit_per_s=None, quota_used_percent=None, amount=2_000_000,
                           rate_per_s=666e3, users=["bob"], client_ids=["reader"])  # fmt: skip
        if at_s % 5 == 0:
            yield _of_two(at_s)
        if at_s % 10 == 0:
            yield decision(at_s, bucket_user="", bucket_client_id="", level=None, rule=None, limit_per_s=None,
                           quota_used_percent=None, amount=30_000, rate_per_s=3e3, users=["carol"],
                           client_ids=[""])  # fmt: skip
            yield from (_of_hostile(at_s, rank, name) for rank, name in enumerate(HOSTILE))
        if at_s % 30 == 0:
            yield _of_jmx(at_s)


def _of_alice(at_s: int) -> Iterator[_Row]:
    limit, is_early = _limit(Entity(user="alice"), at_s), at_s < 300
    rate = 1_100_000.0
    yield decision(at_s, broker_id=1, limit_per_s=limit, rate_per_s=rate, requests=20, requests_judged=18,
                   requests_agreeing=18, uncertain=2, is_certain=at_s % 4 != 0, amount=1_100_000,
                   quota_used_percent=100 * rate / limit, users=["alice"], client_ids=["etl", "adhoc"],
                   throttle_ms=100 if is_early else 0, throttled_requests=2 if is_early else 0,
                   observed_throttle_ms=100 if is_early else 0, total_throttle_ms=200 if is_early else 0,
                   observed_throttled_requests=2 if is_early else 0)  # fmt: skip
    rate = 300_000.0 + 1_000 * at_s
    yield decision(at_s, broker_id=2, limit_per_s=limit, rate_per_s=rate, requests=20, amount=round(rate),
                   requests_judged=20, requests_agreeing=20, quota_used_percent=100 * rate / limit)  # fmt: skip
    yield decision(at_s, quota_type="request", limit_per_s=50.0, rate_per_s=15.0, quota_used_percent=30.0,
                   amount=150_000, requests=20, requests_judged=0, requests_agreeing=0)  # fmt: skip


def _of_two(at_s: int) -> _Row:
    return decision(at_s, bucket_user="", bucket_client_id=SHARED, level=8, rule="clients/<default>",
                    limit_per_s=35e3, rate_per_s=36e3, quota_used_percent=100 * 36 / 35, amount=180_000,
                    requests=2, requests_judged=2, requests_agreeing=2, throttled_requests=1,
                    throttle_ms=300, total_throttle_ms=300, observed_throttle_ms=300,
                    observed_throttled_requests=1, users=["bob", "carol"], client_ids=[SHARED])  # fmt: skip


def _of_hostile(at_s: int, rank: int, name: str) -> _Row:
    rate = 6_000.0 + 800 * rank  # 6,000 to 10,000: none is throttled
    entity = Entity(user=name)
    limit = _limit(entity, at_s)
    return decision(at_s, broker_id=1 + rank % 2, bucket_user=name, rule=str(entity), limit_per_s=limit,
                    rate_per_s=rate, quota_used_percent=100 * rate / limit, amount=50_000 + rank,
                    users=[name], client_ids=[name])  # fmt: skip


def _of_jmx(at_s: int) -> _Row:
    told = ("quota_type", "bucket_user", "second", "event_date", "cluster_id", "bucket_client_id")
    row = decision(at_s, quota_type="fetch", bucket_user="jmx-reader")
    return {name: row[name] for name in told} | {
        "broker_id": 3, "level": 3, "rule": "users/jmx-reader", "limit_per_s": 490_000.0,
        "rate_per_s": 500_000.0, "quota_used_percent": 100 * 500 / 490, "is_certain": False,
        "observed_throttle_ms": 150 if at_s < 120 else None, "is_rules_behind": False, "source": "jmx",
        "users": ["jmx-reader"], "client_ids": [],
    }  # fmt: skip


def _violations() -> Iterator[_Row]:
    yield violation(0, 300, limit_per_s=1e6, peak_rate_per_s=1.1e6, peak_quota_used_percent=110.0)
    yield violation(0, None, bucket_user="", bucket_client_id=SHARED, rule="clients/<default>", level=8)
    yield violation(0, 120, broker_id=3, quota_type="fetch", bucket_user="jmx-reader", source="jmx",
                    throttled_ms=None, throttled_requests=None)  # fmt: skip


def _requests() -> Iterator[_Row]:
    for at_s in range(LENGTH_S):
        yield request(2 * at_s, T0_MS + 1_000 * at_s)
        yield heartbeat(2 * at_s + 1, T0_MS + 1_000 * at_s)
    for extra, reason in enumerate(("not JSON", f"no field of {SCRIPT}")):
        yield unreadable(2 * LENGTH_S + extra, reason)


def _rules() -> Iterator[_Row]:
    yield _rule(Entity(user="jmx-reader"), second(-7_200), None, consumer_byte_rate=490_000.0)
    yield _rule(Entity(client_id=DEFAULT), second(-7_200), None, producer_byte_rate=35e3)
    for entity, limits in _LIMITS.items():
        also = {"request_percentage": 50.0} if entity.user == "alice" else {}
        ends = [second(from_s) for from_s, _ in limits[1:]]
        for (from_s, limit), end in zip(limits, [*ends, None], strict=True):
            yield _rule(entity, second(from_s or -7_200), end, producer_byte_rate=limit, **also)


def _rule(entity: Entity, valid_from: object, valid_to: object, **values: float) -> _Row:
    times = {"valid_from": valid_from, "valid_to": valid_to, "version": 7, "source": "zookeeper"}
    return {"cluster_id": "demo", **entity_columns(entity), **times, **values}


def _changes() -> Iterator[_Row]:
    for entity, limits in _LIMITS.items():
        for version, ((_, previous), (at_s, value)) in enumerate(pairwise(limits)):
            yield {"cluster_id": "demo", **entity_columns(entity), "key": "producer_byte_rate", "value": value,
                   "previous_value": previous, "changed_at": second(at_s), "version": version,
                   "source": "zookeeper", "observed_at": second(at_s)}  # fmt: skip


def _enforcement() -> Iterator[_Row]:
    steps = (
        ("p1", "planned", 100, SCRIPT, 2e4, 1e4, "repeat-offenders", "enforcer", 720),
        ("p1", "applied", 120, SCRIPT, 2e4, 1e4, "repeat-offenders", "enforcer", 720),
        ("p2", "applied", 200, EMOJI, 1e4, 5e4, "override", "dave <dave@example.com>", 500),
        ("p2", "restored", 500, EMOJI, 1e4, 5e4, "override", "enforcer", 500),
        ("p3", "refused", 510, "alice", 2e6, 1e6, "lower-unused", "enforcer", None),
    )
    for sequence, (plan, event, at_s, user, before, after, policy, actor, until_s) in enumerate(steps, 1):
        yield {"cluster_id": "demo", "event_date": second(at_s).date(), "plan_id": plan, "step": 1,
               "sequence": sequence, "event": event, "at": second(at_s), **entity_columns(Entity(user=user)),
               "key": "producer_byte_rate", "value_before": before, "value_after": after, "policy": policy,
               "reason": f"because of {policy}", "would_have": "", "is_penalty": False, "evidence": "{}",
               "expires_at": None if until_s is None else second(until_s), "mode": "enforce",
               "actor": actor, "detail": ""}  # fmt: skip


def _gaps() -> Iterator[_Row]:
    reasons = ((1, 50, 53, "the shipper lost lines"), (2, 0, 0, "the log begins with the broker's start"))
    for broker_id, from_s, to_s, reason in reasons:
        yield {"cluster_id": "demo", "broker_id": broker_id, "from_time": second(from_s),
               "to_time": second(to_s), "reason": reason}  # fmt: skip


def _broker(broker_id: int) -> _Row:
    return {"cluster_id": "demo", "broker_id": broker_id, "version": "3.9", "num_io_threads": 8,
            "num_network_threads": 3, "source": "describe_configs"}  # fmt: skip
