"""Rules against the clients that were seen: each finding with its near miss, and none on a clean cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

from kquota_spark.findings.client_findings import IdSeen, unstable_client_ids
from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.findings.rule_findings import rule_findings
from kquota_spark.model.compare.observed_clients import Observed, Rule, Seen
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve

DAY_MS = 86_400_000
PRODUCE, FETCH = QuotaType.PRODUCE, QuotaType.FETCH


def rule(
    entity: str, produce: float | None = 1e6, fetch: float | None = None, valid_from_ms: int = 0
) -> Rule:
    quotas = {QuotaKey.PRODUCER_BYTE_RATE: produce, QuotaKey.CONSUMER_BYTE_RATE: fetch}
    return Rule(Entity.parse(entity), {k: v for k, v in quotas.items() if v is not None}, valid_from_ms)


def seen(
    user: str, client_id: str, amount: int = 1_000, quota_type: QuotaType = PRODUCE, **more: Any
) -> Seen:
    return Seen(user, client_id, quota_type, amount, **more)


def found(
    clients: Sequence[Seen], *rules: Rule, days: float = 1.0, problems: Mapping[str, str] | None = None
) -> list[Finding]:
    return rule_findings(Observed(clients, rules, 0, round(days * DAY_MS), problems or {}))


def kinds(clients: Sequence[Seen], *rules: Rule, **more: Any) -> list[tuple[Kind, str]]:
    return [(finding.kind, finding.subject) for finding in found(clients, *rules, **more)]


CLEAN = (
    [seen("alice", "etl"), seen("alice", "adhoc"), seen("bob", "app"), seen("bob", "app", quota_type=FETCH)],
    rule("users/alice/clients/etl"),
    rule("users/alice"),
    rule("users/<default>", fetch=2e6),
)


def test_a_clean_cluster_has_no_findings() -> None:
    assert found(*CLEAN, days=30) == []


def test_a_cluster_without_quotas_has_no_findings() -> None:
    assert found([seen("alice", "etl"), seen("", "")], days=30) == []


@pytest.mark.parametrize(("amount", "is_found"), [(1_000, True), (999, False)])
def test_unmetered(amount: int, is_found: bool) -> None:
    # bob of 100,000 bytes in all: 1 %, and just below.
    clients = [seen("alice", "etl", 100_000 - amount), seen("bob", "app", amount)]
    expected = [(Kind.UNMETERED, "user bob, client id app")] if is_found else []
    assert kinds(clients, rule("users/alice")) == expected
    assert kinds(clients, rule("users/alice"), rule("users/<default>")) == []


def test_unmetered_is_about_a_type_that_has_rules_at_all() -> None:
    assert kinds([seen("alice", "etl", quota_type=FETCH)], rule("users/<default>")) == []


@pytest.mark.parametrize(
    ("rules", "severity"),
    [
        (["clients/<default>"], Severity.HIGH),
        (["users/<default>/clients/<default>"], Severity.HIGH),
        (["users/alice/clients/<default>"], Severity.HIGH),
        (["users/<default>"], None),  # the normal user quota
        (["users/alice"], None),
        (["clients/other"], None),  # a client id would not be limited either
    ],
)
def test_empty_client_id(rules: list[str], severity: Severity | None) -> None:
    made = found([seen("alice", "", 5_000)], *map(rule, rules), days=0.5)
    assert [(one.kind, one.severity) for one in made] == (
        [(Kind.EMPTY_CLIENT_ID, severity)] if severity else []
    )


def test_an_empty_client_id_may_get_another_limit() -> None:
    clients = [seen("alice", ""), seen("alice", "etl")]
    [finding] = found(clients, rule("users/alice", 2e6), rule("users/alice/clients/<default>", 1e6))
    assert (finding.kind, finding.severity) == (Kind.EMPTY_CLIENT_ID, Severity.WARNING)
    assert finding.sentence == (
        "produce with an empty client id gets 2,000,000 B/s of users/alice; with any client id it would be "
        "1,000,000 B/s of users/alice/clients/<default> (KAFKA-13341): no default of client ids matches an empty one"
    )


def test_shared_bucket() -> None:
    clients = [seen("alice", "etl", throttled_ms=400), seen("bob", "etl", throttled_ms=300)]
    [finding] = found(clients, rule("clients/etl"))
    assert (finding.kind, finding.severity, finding.subject) == (
        Kind.SHARED_BUCKET, Severity.WARNING, "client id etl",
    )  # fmt: skip
    assert finding.sentence == (
        "2 users share one produce bucket of 1,000,000 B/s per broker (clients/etl), total delay 0.7 s: one of them "
        "can throttle the others"
    )
    assert [row["user"] for row in finding.evidence] == ["alice", "bob"]
    # Level 8 is shared per client id; nothing is shared under rules of users.
    assert kinds(clients, rule("clients/<default>")) == [(Kind.SHARED_BUCKET, "client id etl")]
    assert kinds([seen("alice", "a"), seen("bob", "b")], rule("clients/<default>")) == []
    assert kinds(clients, rule("users/<default>")) == []


def test_shadowed_by_a_rule_that_covers_all_it_names() -> None:
    # Level 6 comes before 7 and 8: a client id's rule limits nobody then, whoever was seen.
    [finding] = found([seen("alice", "etl")], rule("users/<default>"), rule("clients/etl"))
    assert (finding.kind, finding.subject) == (Kind.SHADOWED_RULE, "clients/etl")
    assert finding.sentence == (
        "producer_byte_rate 1,000,000 limits nobody: users/<default> comes before it for all that it names"
    )
    # Of another key there is no shadow.
    assert kinds([seen("a", "etl"), seen("b", "etl", quota_type=FETCH)],
                 rule("users/<default>"), rule("clients/etl", None, 1e6)) == []  # fmt: skip


def test_shadowed_by_pairs() -> None:
    rules = [rule("users/alice"), rule("users/alice/clients/etl"), rule("users/alice/clients/adhoc")]
    clients = [seen("alice", "etl"), seen("alice", "adhoc")]
    [finding] = found(clients, *rules)
    assert (finding.kind, finding.subject) == (Kind.SHADOWED_RULE, "users/alice")
    assert finding.sentence == (
        "producer_byte_rate 1,000,000 limits nobody: all 2 clients that it names have a rule of their own"
    )
    assert kinds([*clients, seen("alice", "new")], *rules) == []
    assert kinds(clients, *rules, days=0.99) == []  # less than a day tells nothing


def test_an_empty_client_id_keeps_a_user_rule_alive() -> None:
    rules = [rule("users/alice", 1e6), rule("users/alice/clients/<default>", 1e6)]
    assert kinds([seen("alice", "etl"), seen("alice", "")], *rules) == []
    assert kinds([seen("alice", "etl")], *rules) == [(Kind.SHADOWED_RULE, "users/alice")]


def test_dead_rule() -> None:
    clients = [seen("alice", "etl")]
    [finding] = found(clients, rule("users/alice"), rule("users/carol"), days=2.5)
    assert (finding.kind, finding.subject, finding.severity) == (Kind.DEAD_RULE, "users/carol", Severity.INFO)
    assert finding.sentence == (
        "producer_byte_rate: nobody that it names was seen in 2.5 days of usage (reported from 1 on)"
    )
    assert kinds(clients, rule("users/alice"), rule("users/carol"), days=0.99) == []
    young = rule("users/carol", valid_from_ms=2 * DAY_MS)
    assert kinds(clients, rule("users/alice"), young, days=2.99) == []
    assert kinds(clients, rule("users/alice"), young, days=3) == [(Kind.DEAD_RULE, "users/carol")]
    # A default names nobody in particular, and alice does use the half of her rule that counts.
    assert kinds(clients, rule("users/alice", 1e6, 1e6)) == [(Kind.DEAD_RULE, "users/alice")]
    assert kinds(clients, rule("users/alice"), rule("users/<default>")) == []


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ("users/User%3Aalice", "User:alice"),
        ("users/CN%253Dapp%252COU%253Dx", "CN%3Dapp%2COU%3Dx"),
        ("clients/my%2520app", "my%20app"),
    ],
)
def test_misencoded_entity(entity: str, name: str) -> None:
    clients = [seen("alice", "my app"), seen("CN=app,OU=x", "my app")]
    [first, *_] = found(clients, rule(entity), days=30)
    assert (first.kind, first.severity, first.subject) == (Kind.MISENCODED_ENTITY, Severity.HIGH, entity)
    assert first.evidence[0]["name"] == name
    # Whoever has that very name is meant by it, and nobody is known to be meant if nobody was seen.
    assert Kind.MISENCODED_ENTITY not in {
        kind for kind, _ in kinds([*clients, seen(name, name)], rule(entity))
    }
    assert Kind.MISENCODED_ENTITY not in {kind for kind, _ in kinds([seen("x", "y")], rule(entity))}


def test_a_misencoded_rule_is_not_called_dead_as_well() -> None:
    rules = [rule("users/User%3Aalice"), rule("users/alice")]
    assert kinds([seen("alice", "etl")], *rules, days=30) == [(Kind.MISENCODED_ENTITY, "users/User%3Aalice")]


def test_a_node_that_brokers_never_find() -> None:
    node = {"users/CN=app,OU=x": "brokers never find this user: Kafka spells it users/CN%3Dapp%2COU%3Dx"}
    [finding] = found([seen("alice", "etl")], rule("users/alice"), problems=node)
    assert (finding.kind, finding.subject) == (Kind.MISENCODED_ENTITY, "users/CN=app,OU=x")
    other = {"users/x": "consumer_byte_rate is not a number: brokers keep what they had"}
    assert found([seen("alice", "etl")], rule("users/alice"), problems=other) == []


def test_mixed_identification() -> None:
    clients = [seen("alice", "etl"), seen("bob", "etl"), seen("carol", "app")]
    [finding] = found(clients, rule("users/alice"), rule("clients/<default>"))
    assert (finding.kind, finding.subject) == (Kind.MIXED_IDENTIFICATION, "client id etl")
    assert "limited by user for alice, and by client id for bob" in finding.sentence
    # Different client ids: each is identified in one way.
    clients = [seen("alice", "own"), seen("bob", "etl")]
    assert kinds(clients, rule("users/alice"), rule("clients/<default>")) == []


def ids(count: int, *, lived_ms: int = 1_000, user: str = "bob", name: str = "app-{:x}-{}") -> list[IdSeen]:
    return [
        IdSeen(user, name.format(0xA0B1C2 + n, n), n * 1_000, n * 1_000 + lived_ms, 500) for n in range(count)
    ]


@pytest.mark.parametrize(
    ("seen_ids", "subjects"),
    [
        (ids(20), ["user bob, client ids app-#-#"]),
        (ids(19), []),
        (ids(40, lived_ms=50_000, name="worker-{1}"), []),  # numbered instances that stay
        (ids(40, name="worker-{1}"), ["user bob, client ids worker-#"]),
        # 20 of 25 are 80 %; 20 of 26 are not.
        (ids(20) + ids(5, lived_ms=60_000, name="app-{:x}-9{}"), ["user bob, client ids app-#-#"]),
        (ids(20) + ids(6, lived_ms=60_000, name="app-{:x}-9{}"), []),
        ([IdSeen("bob", f"{'abcdefghijklmnopqrst'[n]}-app", 0, 0, 1) for n in range(20)], []),
        ([one for n in range(20) for one in ids(1, user=f"u{n}")], []),  # one id each
    ],
)
def test_unstable_client_ids(seen_ids: list[IdSeen], subjects: list[str]) -> None:
    made = unstable_client_ids(seen_ids, 0, 100_000)
    assert [(one.kind, one.subject) for one in made] == [(Kind.UNSTABLE_CLIENT_ID, s) for s in subjects]


def test_uuids_are_one_family() -> None:
    made = unstable_client_ids(
        [IdSeen("bob", f"c-0f8fad5b-d9cb-469f-a165-70867728{n:04x}", 0, 0, 1) for n in range(20)], 0, 100_000
    )
    assert [one.subject for one in made] == ["user bob, client ids c-#"]


def test_where_only_jmx_tells_of_some_traffic_nobody_is_known_to_be_gone() -> None:
    # Nobody called dave was seen, and alice's clients all have rules of their own.
    clients = [seen("alice", "etl")]
    rules = [
        rule("users/dave"),
        rule("users/alice"),
        rule("users/alice/clients/etl"),
        rule("users/<default>"),
    ]
    of_log, of_both = (Observed(clients, rules, 0, DAY_MS, {}, is_sampled) for is_sampled in (False, True))
    assert [(finding.kind, finding.subject) for finding in rule_findings(of_log)] == [
        (Kind.SHADOWED_RULE, "users/alice"),
        (Kind.DEAD_RULE, "users/dave"),
    ]
    assert rule_findings(of_both) == []


def test_names_without_a_rule_share_an_answer_and_it_is_that_of_brokers() -> None:
    users, client_ids = (None, "alice", "<default>"), (None, "etl", "<default>")
    entities = [
        "/".join(part for part in (user and f"users/{user}", client_id and f"clients/{client_id}") if part)
        for user, client_id in product(users, client_ids)
    ][1:]
    sets = [each for count in range(len(entities) + 1) for each in combinations(entities, count)]
    assert len(sets) == 2**8
    for rules in sets:
        of_set = Observed((), [rule(entity, limit) for limit, entity in enumerate(rules, 1)], 0, 1, {})
        for user, client_id in product(("", "alice", "bob"), ("", "etl", "other")):
            asked = user, client_id, QuotaKey.PRODUCER_BYTE_RATE
            right = resolve(*asked, of_set.quotas.get)
            assert of_set.answer(*asked) == (right.entity, right.level, right.limit), (rules, user, client_id)
