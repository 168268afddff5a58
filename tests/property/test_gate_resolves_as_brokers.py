"""A gate that was told any set of rules resolves and throttles as the model does with the same rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota_spark.gateway.gate import QuotaGate
from kquota_spark.gateway.messages import Heartbeat, decided, differences, encode
from kquota_spark.model.govern.govern import RuleGovernor
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.entities import DEFAULT, Entity, Name
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import resolve
from kquota_spark.model.quotas.rules import QuotaChange, RuleBook, rule_periods
from kquota_spark.model.simulation.quota_manager import QuotaManager, Request, governed_limits

_SETTINGS = settings(deadline=None, print_blob=True)
_USERS: list[Name] = ["u", "v/ä", "<default>", DEFAULT, None]
_CLIENTS: list[Name] = ["c", "d%", "<default>", DEFAULT, None]
_ENTITIES = [Entity(u, c) for u in _USERS for c in _CLIENTS if (u, c) != (None, None)]
_VALUES = st.dictionaries(st.sampled_from(QuotaKey), st.floats(allow_nan=False), max_size=4)
RULES = st.dictionaries(st.sampled_from(_ENTITIES), _VALUES)
_NAMES = st.sampled_from(["u", "v/ä", "<default>", "w"])
_IDS = st.sampled_from(["c", "d%", "<default>", "e", ""])


def gate_of(rules: dict[Entity, dict[QuotaKey, float]]) -> tuple[QuotaGate, RuleBook]:
    """A gate that was told the rules through messages, and the rules as the tables have them."""
    edits = [
        QuotaChange(entity, key, value, None, 0, 1)
        for entity, values in rules.items()
        for key, value in values.items()
    ]
    book = RuleBook(rule_periods(edits))
    gate = QuotaGate("pay")
    for message in [*differences("pay", {}, decided(book, [], 0), 0), encode("pay", Heartbeat(0, 0))]:
        gate.take(*message, 0, 0)
    return gate, book


@_SETTINGS
@given(RULES, st.sampled_from(QuotaType), _NAMES, _IDS)
def test_a_gate_resolves_as_the_model(
    rules: dict[Entity, dict[QuotaKey, float]], quota_type: QuotaType, user: str, client_id: str
) -> None:
    found = resolve(user, client_id, quota_type.key, rules.get)
    gate, _ = gate_of(rules)
    assert gate.limit(quota_type, user, client_id, 0) == (found.bucket, found.limit)


_REQUESTS = st.lists(st.tuples(_NAMES, _IDS, st.integers(0, 10**7), st.integers(0, 3_000)), max_size=30)


@_SETTINGS
@given(RULES, _REQUESTS)
def test_a_gate_throttles_as_the_broker(
    rules: dict[Entity, dict[QuotaKey, float]], requests: list[tuple[str, str, int, int]]
) -> None:
    gate, book = gate_of(rules)
    manager = QuotaManager(governed_limits(RuleGovernor(book), 1, 0), RateConfig())
    time_ms = 0
    for user, client_id, size, later_ms in requests:
        time_ms += later_ms
        produce = Request(Api.PRODUCE, user, client_id, 1, 9, size)
        fetch = Request(Api.FETCH, user, client_id, 1, 12, size)
        assert gate.check(produce, time_ms, size) == manager.check(produce, time_ms, size)
        assert gate.fetch_max_bytes(fetch, time_ms) == manager.fetch_max_bytes(fetch)
        of_gate = gate.on_response(fetch, time_ms, response_bytes=size, thread_time_ns=size)
        assert of_gate == manager.on_response(fetch, time_ms, response_bytes=size, thread_time_ns=size)
        assert gate.expired(time_ms) == manager.expired(time_ms)
