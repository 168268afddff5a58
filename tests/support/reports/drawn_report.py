"""A report as literal data, with names as hostile as clients may send them."""

from __future__ import annotations

import math
from dataclasses import replace

from kquota_spark.reports.scope.shared_rows import (
    Agreement,
    BucketName,
    Change,
    Confidence,
    Head,
    Recommendation,
    ThrottledBucket,
    Trust,
    Unprotected,
)
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.buckets import PeriodBucket
from kquota_spark.reports.sections.capacity import Capacity
from kquota_spark.reports.sections.limits import HeatMap
from kquota_spark.reports.sections.rates import Line
from kquota_spark.reports.sections.spread import Skew
from kquota_spark.reports.sections.throttled import ThrottleSpread
from kquota_spark.reports.sections.trust import ThrottlePair
from kquota_spark.reports.sections.usage import Talker, Talkers
from tests.support.reports.drawn_budgets import owner_budget
from tests.support.reports.drawn_sizes import size_row

START_MS = 1_795_132_800_000  # 2026-11-20 00:00 UTC
DAY_MS = 86_400_000
SLOT_MS = 1_800_000
SLOTS = tuple(range(START_MS, START_MS + DAY_MS, SLOT_MS))
HOSTILE = (
    "<script>window.__pwned=1;alert(1)</script>",
    "</script><script>window.__pwned=2</script>",
    "\"'><img src=x onerror=window.__pwned=3>",
    "javascript:window.__pwned=4",
    "=cmd|'/c calc'!A0",
    "🦄 naïve 日本",
    "\u202egnp.exe",
    "x" * 300,
    "",
    "a|b `c` *d* _e_ [f](javascript:window.__pwned=5) # g \\",
    "two\nlines\r\n| and | a row |",
    '<a href="javascript:window.__pwned=6">%{y}</a><br>$x^2$ &lt;b&gt;',
    "@SUM(1+1)",
    "${7*7}{{7*7}}{% raw %}",
    "\u2028separators\u2029 and ]]> and <!-- ",
    "<b>&amp;</b>",
)
TALKER_NAMES = (("bob", "etl"), ("carol", "dashboard"), *(("mallory", name) for name in HOSTILE))


def name(user: str, client_id: str = "", quota_type: str = "produce") -> BucketName:
    return BucketName(quota_type, user, client_id)


def throttled(bucket: BucketName, percent: float, delay_ms: int = 61_500) -> ThrottledBucket:
    return ThrottledBucket(
        bucket, 1_000_000.0, delay_ms, 420, round(percent * 864), percent, 1, 3, 100 + percent,
        ("bob / etl", "bob / backfill"),
    )  # fmt: skip


def used(row: int, slot: int) -> float | None:
    """Rows 0 to 2 go over the limit in the middle of the day, 3 to 5 come near, the others stay calm."""
    if (row * 7 + slot) % 11 == 0:
        return None
    top = (168.0, 121.0, 100.5, 99.0, 91.0, 80.0)[row] if row < 6 else 30.0 + row
    return round(top * (0.35 + 0.65 * math.exp(-(((slot - 24) / 9) ** 2))), 3)


def heat() -> HeatMap:
    buckets = (name("bob"), name("carol"), *(name("mallory", text) for text in HOSTILE))
    values = tuple(tuple(used(row, slot) for slot in range(len(SLOTS))) for row in range(len(buckets)))
    # In the last slot of the third bucket nothing is certain.
    uncertain: list[list[float | None]] = [[None] * len(SLOTS) for _ in buckets]
    uncertain[2][-1], values = values[2][-1], (*values[:2], (*values[2][:-1], None), *values[3:])
    return HeatMap(
        SLOT_MS,
        SLOTS,
        buckets,
        values,
        tuple(map(tuple, uncertain)),
        9_960,
        near=3,
        over=3,
        near_unthrottled=4,
    )


def line(bucket: BucketName, broker_id: int = 1) -> Line:
    rates = tuple(600_000 + 900_000 * math.exp(-(((slot - 24) / 9) ** 2)) for slot in range(len(SLOTS)))
    limits = tuple(1_000_000.0 if slot < 30 else 2_000_000.0 for slot in range(len(SLOTS)))
    throttled = tuple(
        900 if rate > limit else 0 for rate, limit in zip(rates, limits, strict=True)
    )  # fmt: skip
    certain = tuple(slot != 24 for slot in range(len(SLOTS)))
    return Line(bucket, broker_id, SLOT_MS, SLOTS, rates, certain, limits, throttled)


def talkers(quota_type: str) -> Talkers:
    """Shares halve from one to the next; 9,983 others share what is left."""
    total = 1 << 40
    rows = [
        Talker(user, client, quota_type, total >> (number + 1), 100 / 2 ** (number + 1), 1_000 >> number,
               (total >> (number + 1)) / 86_400, (total >> (number + 1)) / 40_000, 250 * number)
        for number, (user, client) in enumerate(TALKER_NAMES)
    ]  # fmt: skip
    rest = total - sum(row.amount for row in rows)
    return Talkers(quota_type, total, tuple(rows), 9_983, rest)


def changes() -> tuple[Change, ...]:
    at = START_MS + 15 * 3_600_000
    return (
        Change(at, "users/bob", "producer_byte_rate", 1e6, 2e6, "edit", "alice: more for the backfill"),
        Change(at + 600_000, "users/carol", "consumer_byte_rate", None, 5e5, "enforcement applied", "penalty"),
        Change(at + 1_200_000, "users/carol", "consumer_byte_rate", 5e5, None, "restored", "penalty"),
        *(Change(at + number * 60_000, f"users/{text}", "request_percentage", 50.0, 25.0, "edit", text)
          for number, text in enumerate(HOSTILE)),
    )  # fmt: skip


def full_report() -> AuditReport:
    """Every section filled."""
    return AuditReport(
        head=Head("payments", START_MS, START_MS + DAY_MS, START_MS + DAY_MS + 90_000, "0.1.0"),
        confidence=Confidence(
            Trust.WITH_CARE, ("2 lines could not be read.", f"Broker 2 was silent; last client {HOSTILE[0]}."),
            (Agreement("produce", 25_173, 25_172, 792), Agreement("fetch", 1_818, 1_809, 520)),
            97.25, 4_200, 29_839, 2, 3, 1, ("log",),
        ),
        throttled=(
            throttled(name("bob"), 41.5, 9_000_000), throttled(name("carol", "dash", "fetch"), 3.25),
            *(throttled(name("mallory", text), 2.5 - number / 10) for number, text in enumerate(HOSTILE)),
        ),
        throttled_left_out=40,
        throttle_pairs=(
            ThrottlePair(0.0, 11_585.2, is_certain=False, seconds=1),
            ThrottlePair(90.5, 90.5, is_certain=True, seconds=400),
            ThrottlePair(107.6, 90.5, is_certain=True, seconds=3),
        ),
        throttle_spreads=tuple(
            ThrottleSpread(user, 420, 61_500, tuple(range(1, 102)))
            for user in ("bob", *HOSTILE[:7])
        ),
        budgets=(
            owner_budget("payments", -40.0), owner_budget("search", 3.0),
            *(owner_budget(text, 80.0) for text in HOSTILE),
        ),
        heat=(heat(),),
        lines=(line(name("bob")), *(line(name("mallory", text), 2) for text in HOSTILE)),
        talkers=(talkers("produce"), talkers("fetch")),
        skew=(
            Skew(name("bob"), 1e6, {1: 900_000.0, 2: 200_000.0, 3: 100_000.0}, {1: 61_500, 2: 0, 3: 0}, 2.25, 3e6, 4e6),
            *(Skew(name("mallory", text), 1e6, {1: 5e5, 2: 4e5}, {1: 0, 2: 0}, 1.11, 2e6, 3e6) for text in HOSTILE),
        ),
        changes=changes(),
        changes_left_out=3,
        unprotected=tuple(
            Unprotected("UNMETERED", "high" if number < 2 else "warning", f"user mallory, client id {text}",
                        f"Client {text} sent 1.2 GB and no rule matched.", "Set a default for user mallory.")
            for number, text in enumerate(HOSTILE)
        ),
        unprotected_left_out=5,
        recommendations=(
            Recommendation("users/bob", "producer_byte_rate", 1e6, 1.5e6, "Held back 41.5 % of the day.",
                           "kquota quotas set --user bob --producer-byte-rate 1500000 --dry-run"),
            *(Recommendation(f"users/{text}", "request_percentage", None, 20.0, f"Never set for {text}.",
                             f"kquota quotas set --user '{text}' --request-percentage 20") for text in HOSTILE),
            Recommendation("", "", None, None, "Broker 2 has no request log.", ""),
        ),
        right_sizes=(
            size_row("bob", 200_000.0, 453_000.0, (375_000.0, 432_000.0)), size_row("erin", 1e5, 187_000.0, None),
            *(size_row(text, 1e6, 152_000.0, (128_000.0, 148_000.0)) for text in HOSTILE),
        ),
        right_sizes_chosen=17,
        capacity=(Capacity(1, 8, 3, 1_100.0, 220.5), Capacity(2, 8, 3, 1_100.0, None)),
        notes=("Quotas of ip addresses are not in this page.",),
    )  # fmt: skip


def empty_report() -> AuditReport:
    """A period in which nothing happened."""
    head = replace(full_report().head, from_ms=START_MS)
    return AuditReport(head, Confidence(Trust.YES, (), (), None, None, 0, 0, 0, 0, ()))


def without_quotas() -> AuditReport:
    """No quota is set: usage and starting values."""
    full = full_report()
    return replace(
        full, head=replace(full.head, is_first_look=True), throttled=(), throttled_left_out=0, heat=(), lines=(),
        changes=(), changes_left_out=0,
    )  # fmt: skip


def tenant_report(tenant: str = "bob") -> AuditReport:
    """One user's own page, as the gathering makes it: of that user only."""
    full = full_report()
    rates = replace(
        heat(),
        buckets=(name(tenant),),
        quota_used_percent=(heat().quota_used_percent[0],),
        uncertain_percent=(heat().uncertain_percent[0],),
        left_out=0,
        near=0,
        over=1,
        near_unthrottled=0,
    )
    own = Talker(tenant, "etl", "produce", 1 << 39, 50.0, 500, 6_362_914.0, 9_000_000.0, 250)
    return replace(
        full,
        head=replace(full.head, tenant=tenant),
        throttle_pairs=(),
        throttle_spreads=(replace(full.throttle_spreads[0], user=tenant),),
        throttled=(throttled(name(tenant), 14.0),),
        throttled_left_out=0,
        budgets=(owner_budget(tenant, 75.0),),
        right_sizes=(),
        right_sizes_chosen=0,
        heat=(rates,),
        lines=(line(name(tenant)),),
        talkers=(Talkers("produce", 1 << 40, (own,), 0, 0),),
        skew=(),
        changes=(replace(full.changes[0], entity=f"users/{tenant}", by=""),),
        changes_left_out=0,
        unprotected=(),
        unprotected_left_out=0,
        recommendations=(replace(full.recommendations[0], entity=f"users/{tenant}", command=""),),
        capacity=(),
    )


def large_report() -> AuditReport:
    """10,000 clients and 1,000 of all else, as no gathering would hand over."""
    full = full_report()
    many = [f"client-{number:05}" for number in range(10_000)]
    first = talkers("produce").talkers[0]
    return replace(
        full,
        throttled=tuple(throttled(name("bob", text), 1.0) for text in many),
        heat=(
            HeatMap(
                SLOT_MS,
                SLOTS,
                tuple(name("bob", text) for text in many),
                ((99.0,) * len(SLOTS),) * 10_000,
                ((None,) * len(SLOTS),) * 10_000,
                0,
                near=10_000,
                over=0,
                near_unthrottled=0,
            ),
        ),
        lines=tuple(line(name("bob", text)) for text in many[:100]),
        talkers=(Talkers("produce", 1 << 40, tuple(replace(first, client_id=text) for text in many), 0, 0),),
        skew=tuple(
            Skew(name("bob", text), 1e6, {1: 1.0, 2: 2.0}, {}, 1.33, 2e6, 3e6) for text in many[:1_000]
        ),
        unprotected=tuple(Unprotected("UNMETERED", "high", text, "x", "y") for text in many),
        recommendations=tuple(
            Recommendation(text, "producer_byte_rate", 1.0, 2.0, "z", "") for text in many[:1_000]
        ),
        changes=tuple(
            Change(START_MS, text, "producer_byte_rate", 1.0, 2.0, "edit", "") for text in many[:1_000]
        ),
    )


def all_buckets_report() -> AuditReport:
    """1,200 users with 7 client ids each, the even ones of produce and on broker 1, and one hostile bucket first."""
    buckets = tuple(
        PeriodBucket(
            BucketName(("produce", "fetch")[number % 2], f"user-{number // 7:04}", f"client-{number % 7}"),
            (number % 2 + 1,), 1_000_000.0 + number, None if number % 7 == 6 else number / 100, 8_400 - number, 1,
        )
        for number in range(8_400)
    )  # fmt: skip
    hostile = PeriodBucket(BucketName("produce", "mallory", HOSTILE[0]), (3,), 1.0, 250.0, 90_000, 7)
    return replace(full_report(), buckets=(hostile, *buckets))
