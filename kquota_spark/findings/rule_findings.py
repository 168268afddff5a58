"""Findings from rules and seen clients: clients without a limit, rules without effect, and wrong names.

Clients are resolved in the present rules, as brokers do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kquota_spark.findings.findings import Finding, Kind, Severity, client_text
from kquota_spark.findings.idle_rules import LEAST_OBSERVED_MS, dead, misnamed, shadowed
from kquota_spark.model.compare.observed_clients import ANY_NAME, Governing, Observed, Seen
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.quotas.resolve import CLIENT_ONLY_LEVELS, USER_ONLY_LEVELS

LEAST_UNMETERED_PERCENT = 1.0
"""Fewest percent of the bytes of a quota type for a finding: a client with less is not worth a rule."""
_MOST_ROWS = 100
_NEVER_FOUND = "brokers never find this user"
"""First words of the problem that `formats.znodes.nodes` reports for a user node not spelt as Kafka spells it."""


def rule_findings(observed: Observed) -> list[Finding]:
    """All findings about rules, names and buckets."""
    return [
        *_misencoded(observed),
        *_unmetered(observed),
        *_empty_client_ids(observed),
        *_shared_buckets(observed),
        *_shadowed(observed),
        *_dead(observed),
        *_mixed(observed),
    ]


def _misencoded(observed: Observed) -> Iterator[Finding]:
    """Names not spelt as brokers compare them; those in ZooKeeper by the problems that its reader reported."""
    for rule, (name, seen_as) in misnamed(observed).items():
        yield Finding(
            Kind.MISENCODED_ENTITY,
            Severity.HIGH,
            str(rule),
            f"matches nobody: the name as set is {name}, but the log has {seen_as}",
            f"set it for {seen_as} and remove this one",
            ({"entity": str(rule), "name": name, "seen": seen_as},),
        )
    for node, problem in observed.problems.items():
        if problem.startswith(_NEVER_FOUND):
            yield Finding(
                Kind.MISENCODED_ENTITY,
                Severity.HIGH,
                node,
                problem,
                "set the quota with kafka-configs.sh, which spells the name right, and remove this node",
                ({"entity": node, "name": node, "seen": None},),
            )


def _by_type(observed: Observed) -> Iterator[tuple[QuotaType, list[Seen]]]:
    """Bandwidth types with any rule, and their clients. If a type has no rule, no client was forgotten."""
    for quota_type in BANDWIDTH:
        if any(quota_type.key in rule.quotas for rule in observed.rules):
            yield quota_type, [one for one in observed.seen if one.quota_type is quota_type]


def _unmetered(observed: Observed) -> Iterator[Finding]:
    for quota_type, seen in _by_type(observed):
        total = sum(one.amount for one in seen)
        for one in seen:
            is_large = one.amount > 0 and 100 * one.amount >= LEAST_UNMETERED_PERCENT * total
            if one.client_id and is_large and observed.resolved(one).limit is None:
                yield Finding(
                    Kind.UNMETERED,
                    Severity.WARNING,
                    client_text(one.user, one.client_id),
                    f"no {quota_type.key.value} holds for it, though others have one: {one.amount:,} bytes, "
                    f"{100 * one.amount / total:.1f} % of all {quota_type.value} (reported from "
                    f"{LEAST_UNMETERED_PERCENT:.0f} % on)",
                    "give it a quota, or a default to all",
                    (_row(one),),
                )


def _empty_client_ids(observed: Observed) -> Iterator[Finding]:
    for quota_type, seen in _by_type(observed):
        for one in seen:
            if one.client_id:
                continue
            named = observed.answer(one.user, ANY_NAME, quota_type.key)
            empty = observed.resolved(one)
            if named.limit is None or empty.limit == named.limit:
                continue
            has = "no limit" if empty.limit is None else f"{empty.limit:,.0f} B/s of {empty.entity}"
            yield Finding(
                Kind.EMPTY_CLIENT_ID,
                Severity.HIGH if empty.limit is None else Severity.WARNING,
                client_text(one.user, ""),
                f"{quota_type.value} with an empty client id gets {has}; with any client id it would be "
                f"{named.limit:,.0f} B/s of {named.entity} (KAFKA-13341): no default of client ids "
                "matches an empty one",
                "set client.id in the client, or a quota for its user",
                (_row(one),),
            )


def _shared_buckets(observed: Observed) -> Iterator[Finding]:
    for quota_type, seen in _by_type(observed):
        shared: dict[str, list[tuple[Seen, Governing]]] = {}
        for one in seen:
            found = observed.resolved(one)
            if found.level in CLIENT_ONLY_LEVELS:
                shared.setdefault(one.client_id, []).append((one, found))
        for client_id, of_bucket in shared.items():
            users = sorted({one.user for one, _ in of_bucket})
            if len(users) < 2:
                continue
            delay_ms = sum(one.throttled_ms for one, _ in of_bucket)
            delay_s = float(f"{delay_ms / 1_000:.3g}")
            rule = of_bucket[0][1]
            yield Finding(
                Kind.SHARED_BUCKET,
                Severity.WARNING if delay_ms else Severity.INFO,
                f"client id {client_id}",
                f"{len(users)} users share one {quota_type.value} bucket of {rule.limit or 0:,.0f} B/s per broker "
                f"({rule.entity}), total delay {delay_s:,.12g} s: one of them can throttle the others",
                "give the users quotas of their own, or client ids",
                tuple(_row(one) for one, _ in of_bucket[:_MOST_ROWS]),
            )


def _shadowed(observed: Observed) -> Iterator[Finding]:
    for rule, key, by, named in shadowed(observed):
        why = f"all {len(named)} clients that it names have a rule of their own"
        if not named:
            why = f"{by[0]} comes before it for all that it names"
        yield Finding(
            Kind.SHADOWED_RULE,
            Severity.WARNING,
            str(rule.entity),
            f"{key.value} {rule.quotas[key]:,.0f} limits nobody: {why}",
            f"remove it, or what is more specific ({', '.join(by[:3])}{', ...' if len(by) > 3 else ''})",
            tuple(map(_row, named[:_MOST_ROWS])),
        )


def _dead(observed: Observed) -> Iterator[Finding]:
    for rule, keys in dead(observed):
        days = (observed.to_ms - observed.from_ms) / LEAST_OBSERVED_MS
        names = " and ".join(key.value for key in keys)
        yield Finding(
            Kind.DEAD_RULE,
            Severity.INFO,
            str(rule.entity),
            f"{names}: nobody that it names was seen in {days:.1f} days of usage (reported from 1 on)",
            "remove it if the client is gone",
        )


def _mixed(observed: Observed) -> Iterator[Finding]:
    for quota_type, seen in _by_type(observed):
        by_client: dict[str, tuple[list[Seen], list[Seen]]] = {}
        for one in seen:
            level = observed.resolved(one).level
            if level in USER_ONLY_LEVELS or level in CLIENT_ONLY_LEVELS:
                by_client.setdefault(one.client_id, ([], []))[level in CLIENT_ONLY_LEVELS].append(one)
        for client_id, (by_user, by_id) in by_client.items():
            if by_user and by_id:
                yield Finding(
                    Kind.MIXED_IDENTIFICATION,
                    Severity.INFO,
                    f"client id {client_id}",
                    f"its {quota_type.value} is limited by user for {_users(by_user)}, and by client id for "
                    f"{_users(by_id)}: the limit of the client id does not hold for all who use it",
                    "identify clients in one way: rules of users, or rules of client ids",
                    tuple(_row(one) for one in (*by_user, *by_id)[:_MOST_ROWS]),
                )


def _users(seen: Iterable[Seen]) -> str:
    names = sorted({one.user for one in seen})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _row(one: Seen) -> dict[str, str | int]:
    return {
        "user": one.user, "client_id": one.client_id, "quota_type": one.quota_type.value,
        "bytes": one.amount, "delay_ms": one.throttled_ms,
    }  # fmt: skip
