"""GOVERN over random rules answers for whole seconds what the model answers, asked anew for each request."""

from __future__ import annotations

from collections.abc import Sequence

from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from tests.support.chance import Chance
from tests.support.pipeline.governed_requests import Asked, Found, asked, governed
from tests.support.tables.table_rows import T0_MS

USERS: Sequence[str] = ("alice", "bob", "<default>", "team:pay+ments@corp", "ü ", "")
CLIENTS: Sequence[str] = ("etl", "app", "<default>", "a/b", "")


def _random_changes(chance: Chance) -> list[QuotaChange]:
    """Edits of random entities of each level, set and removed, some at the very same millisecond."""
    names = [name for name in USERS if name]
    clients = [name for name in CLIENTS if name]
    changes = []
    for users in (names, [DEFAULT], [None]):
        for client_ids in (clients, [DEFAULT], [None]):
            for entity in dict.fromkeys((chance.choice(users), chance.choice(client_ids)) for _ in range(3)):
                if entity != (None, None):
                    changes += _random_edits(chance, Entity(*entity))
    return changes


def _random_edits(chance: Chance, entity: Entity) -> list[QuotaChange]:
    edits = []
    for _ in range(chance.randrange(1, 5)):
        at_ms = chance.choice([0, T0_MS + chance.randrange(5_000), T0_MS + 1_000 * chance.randrange(5)])
        key = chance.choice(list(QuotaKey))
        value = None if chance.random() < 0.3 else float(chance.randrange(1, 10**6))
        edits.append(QuotaChange(entity, key, value, None, at_ms, at_ms))
    return edits


STATIC_DEFAULTS = {QuotaType.FETCH: 5e5}


def _expected(book: RuleBook, asked_for: Asked) -> Found:
    quota_type, user, client_id, time_ms = asked_for
    found, _ = RuleGovernor(book, STATIC_DEFAULTS).explain(QuotaType(quota_type), user, client_id, time_ms)
    governing = found.governing
    return Found(
        found.level,
        governing.limit_per_s,
        found.rule,
        found.rule_version,
        (found.bucket.user, found.bucket.client_id),
        (governing.valid_from_ms, governing.valid_to_ms),
        governing.has_request_quota,
    )


def test_it_answers_as_the_model_does(chance: Chance) -> None:
    changes = _random_changes(chance)
    book = RuleBook(rule_periods(changes))
    edges = sorted({edit.changed_at_ms for edit in changes if edit.changed_at_ms})
    rows, expected = [], []
    for quota_type in QuotaType:
        for user in USERS:
            for client_id in CLIENTS:
                for second_ms in range(T0_MS - 1_000, T0_MS + 6_000, 1_000):
                    inside = {second_ms + chance.randrange(1_000) for _ in range(4)}
                    inside |= {edge for edge in edges if second_ms <= edge < second_ms + 1_000}
                    moments_ms = sorted(inside)
                    rows.append(asked(*moments_ms, user=user, client_id=client_id, quota_type=quota_type))
                    expected += [(quota_type.value, user, client_id, moment_ms) for moment_ms in moments_ms]
    found = governed(changes, rows, STATIC_DEFAULTS)
    assert [each for each, _ in found] == sorted(expected)
    wrong = [
        (each, answer, _expected(book, each)) for each, answer in found if answer != _expected(book, each)
    ]
    assert not wrong, wrong[0]
    print(f"levels {sorted({answer.level or 0 for _, answer in found})}, {len(found):,} requests")
