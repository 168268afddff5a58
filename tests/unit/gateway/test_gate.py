"""A gate throttles as the broker would, and what goes wrong on its topic neither raises nor loosens a limit."""

from __future__ import annotations

import pytest

from kquota_spark.gateway.gate import Fallback, GateState, QuotaGate
from kquota_spark.gateway.messages import Decided, Encoded, Heartbeat, Message, Ours, Removed, encode
from kquota_spark.model.measure.apis import Api
from kquota_spark.model.measure.combining import NOT_THROTTLED
from kquota_spark.model.quotas.entities import DEFAULT, Entity
from kquota_spark.model.quotas.quota_types import QuotaKey, QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.quotas.rules import END_MS
from kquota_spark.model.simulation.quota_manager import Request

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, ANY = Entity("alice"), Entity("bob"), Entity(DEFAULT)
S = 1_000


def gate(fallback: Fallback | None = None) -> QuotaGate:
    """Live for 10 s, stale until 60 s after the last word."""
    return QuotaGate("pay", silence_ms=10 * S, give_up_ms=60 * S, fallback=fallback or {})


def tell(gate: QuotaGate, message: Message, time_ms: int = 0, *, issued_ms: int = 0) -> None:
    gate.take(*encode("pay", message), issued_ms, time_ms)


def told(*messages: Message) -> QuotaGate:
    """A gate that was told at time 0, with a heartbeat."""
    found = gate()
    for message in (*messages, Heartbeat(0, 0)):
        tell(found, message)
    return found


def limit(gate: QuotaGate, time_ms: int = 0, user: str = "alice") -> float | None:
    return gate.limit(QuotaType.PRODUCE, user, "app", time_ms).per_s


def quotas(entity: Entity, produce: float, issued_ms: int = 0) -> Decided:
    return Decided(entity, {PRODUCE: produce}, issued_ms=issued_ms)


def cut(until_ms: int | None, before: float | None = 1e6) -> Decided:
    """Alice is held to 0.5 MB/s by enforcement."""
    return Decided(ALICE, {PRODUCE: 5e5, FETCH: 7.0}, {PRODUCE: Ours("p", "loud", until_ms, before)})


def test_the_worked_example_of_kip_13_through_a_gate() -> None:
    found = told(quotas(ALICE, 5e6))
    request = Request(Api.PRODUCE, "alice", "app", 1, 9, 10_000_000)
    for second in (0, 2, 4, 6, 8):
        assert found.check(request, second * S) == NOT_THROTTLED
    # 60 MB in 10 s at 5 MB/s: (60 - 50) / 5 = 2 s.
    assert found.check(request, 10 * S) == (2_000, QuotaType.PRODUCE)
    assert found.expired(12 * S - 1) == []
    assert [parked.due_ms for parked in found.expired(12 * S)] == [12 * S]


def test_a_fetch_is_capped_and_throttled() -> None:
    found = told(Decided(ALICE, {FETCH: 1e6}))
    request = Request(Api.FETCH, "alice", "app", 1, 12, 50_000_000)
    assert found.fetch_max_bytes(request, 0) == 10_000_000  # 10 windows of 1 s
    # 12 MB in 10 s: (12 - 10) / 1 = 2 s.
    assert found.on_response(request, 0, response_bytes=12_000_000) == (2_000, QuotaType.FETCH)
    assert len(found.shutdown()) == 1


def test_new_limits_judge_the_history_that_the_buckets_have() -> None:
    found = told(quotas(ALICE, 5e6))
    request = Request(Api.PRODUCE, "alice", "app", 1, 9, 12_000_000)
    assert found.check(request, 0).throttle_ms == 0
    tell(found, quotas(ALICE, 2e6, issued_ms=1))
    # 24 MB in 10 s at 2 MB/s: (24 - 20) / 2 = 2 s.
    assert found.check(request, 0).throttle_ms == 2_000


def test_a_default_limits_each_user_in_a_bucket_of_its_own() -> None:
    found = told(quotas(ANY, 1e6), quotas(BOB, 2e6))
    assert found.limit(QuotaType.PRODUCE, "alice", "app", 0) == (Bucket("alice", ""), 1e6)
    assert found.limit(QuotaType.PRODUCE, "bob", "app", 0) == (Bucket("bob", ""), 2e6)
    # Nobody is called by the default's name.
    assert limit(told(quotas(Entity("<default>"), 3e6)), user="alice") is None


def test_the_state_goes_by_the_last_heartbeat() -> None:
    found = gate()
    assert found.state_at(0) is GateState.FALLBACK
    tell(found, quotas(ALICE, 1.0))
    assert found.state_at(0) is GateState.FALLBACK  # a quota says nothing of the others
    tell(found, Heartbeat(0, 0))
    states = [found.state_at(second * S).value for second in (0, 10, 11, 60, 61)]
    assert states == ["live", "live", "stale", "stale", "fallback"]
    tell(found, Heartbeat(61 * S, 1), 61 * S)
    assert found.state_at(61 * S) is GateState.LIVE


def test_an_old_heartbeat_in_the_topic_is_not_life() -> None:
    found = gate()
    tell(found, Heartbeat(0, 0), 30 * S)
    assert found.state_at(30 * S) is GateState.STALE


def test_a_clock_that_is_ahead_keeps_nobody_alive() -> None:
    found = gate()
    tell(found, Heartbeat(999_999 * S, 0), 0)
    assert [found.state_at(second * S).value for second in (10, 11)] == ["live", "stale"]


def test_quotas_that_are_known_through_an_old_time_are_stale_however_often_it_is_said() -> None:
    found = gate()
    for second in range(20):
        tell(found, Heartbeat(0, second * S), second * S)
    assert found.state_at(19 * S) is GateState.STALE


def test_a_silent_topic_keeps_the_quotas_that_were_known() -> None:
    found = told(quotas(ALICE, 5e5))
    assert [limit(found, second * S) for second in (0, 11, 60)] == [5e5, 5e5, 5e5]


@pytest.mark.parametrize(("before", "after"), [(1e6, 1e6), (None, None)])
def test_a_change_of_ours_ends_at_its_time_once_nobody_else_can_end_it(
    before: float | None, after: float | None
) -> None:
    found = told(cut(5 * S, before))
    # Live: brokers go on with it until the enforcer puts it back, and so does the gate.
    assert limit(found, 9 * S) == 5e5
    assert limit(found, 11 * S) == after
    assert found.limit(QuotaType.FETCH, "alice", "app", 11 * S).per_s == 7.0
    later = told(cut(40 * S, before))
    assert [limit(later, second * S) for second in (39, 40)] == [5e5, after]
    assert limit(told(cut(None, before)), 60 * S) == 5e5


def test_a_quota_that_we_removed_for_a_time_comes_back() -> None:
    found = told(Decided(ALICE, {}, {PRODUCE: Ours("p", "burst allowed", 20 * S, 1e6)}))
    assert [limit(found, second * S) for second in (19, 20)] == [None, 1e6]


def test_given_up_the_fallback_holds_and_nothing_else() -> None:
    found = gate({ANY: {PRODUCE: 3e6}})
    assert limit(found) == 3e6
    tell(found, quotas(ALICE, 5e5))
    tell(found, Heartbeat(0, 0))
    assert [limit(found, second * S) for second in (60, 61)] == [5e5, 3e6]
    assert limit(gate()) is None


def test_a_removed_entity_is_free() -> None:
    found = told(quotas(ALICE, 5e5, issued_ms=1))
    tell(found, Removed(ALICE), issued_ms=2)
    assert limit(found) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"pay/users/alice", b"{"),
        (b"pay/users/alice", b'{"version":2}'),
        (b"pay/users/alice/x", None),
        (b"pay/users/alice", encode("pay", quotas(BOB, 9e9, 99)).value),
        (b"pay/", None),
        (b"pay/", b"null"),
    ],
)
def test_a_bad_message_is_counted_and_changes_nothing(key: bytes | None, value: bytes | None) -> None:
    found = told(quotas(ALICE, 5e5))
    found.take(key, value, 99, 0)
    assert limit(found) == 5e5
    assert (found.counts.taken, found.counts.outdated, found.counts.refused) == (2, 0, 1)
    assert found.counts.last_refusal.endswith(f"at key {(key or b'')!r}")


def test_messages_of_other_clusters_are_nobodys_business() -> None:
    found = told(quotas(ALICE, 5e5))
    found.take(b"other/users/alice", None, 99, 0)
    found.take(*encode("other", Heartbeat(50 * S, 99)), 99, 50 * S)
    assert (found.counts.taken, found.counts.refused, limit(found)) == (2, 0, 5e5)
    assert found.state_at(50 * S) is GateState.STALE


def test_what_was_issued_before_never_loosens_a_limit() -> None:
    found = told(quotas(ALICE, 5e5, issued_ms=100))
    for late in (quotas(ALICE, 9e9, issued_ms=99), Removed(ALICE)):
        tell(found, late, issued_ms=99)
    assert limit(found) == 5e5
    assert found.counts.outdated == 2
    tell(found, Removed(ALICE), issued_ms=101)
    tell(found, quotas(ALICE, 9e9, issued_ms=100))
    assert limit(found) is None


def test_a_message_of_the_far_future_neither_holds_nor_shuts_out_later_ones() -> None:
    found = told(quotas(ALICE, 5e6))
    # A minute ahead of the gate is a clock; a second more is refused.
    tell(found, quotas(ALICE, 4e6, issued_ms=60 * S))
    forged = [quotas(ALICE, 9e9, issued_ms=61 * S + 1), quotas(BOB, 9e9, issued_ms=END_MS)]
    for message in forged:
        tell(found, message, time_ms=1 * S)
    tell(found, Removed(ALICE), time_ms=1 * S, issued_ms=END_MS)
    assert (limit(found), limit(found, user="bob")) == (4e6, None)
    assert found.counts.refused == 3
    assert "issued more than 60 s ahead of this clock" in found.counts.last_refusal
    tell(found, quotas(BOB, 1e6, issued_ms=2 * S), time_ms=2 * S)
    assert limit(found, 2 * S, user="bob") == 1e6


def test_an_older_heartbeat_does_not_make_a_live_gate_stale() -> None:
    found = told()
    tell(found, Heartbeat(20 * S, 2), 20 * S)
    tell(found, Heartbeat(5 * S, 1), 20 * S)
    assert (found.state_at(20 * S), found.counts.outdated) == (GateState.LIVE, 1)


def log() -> list[tuple[Encoded, int]]:
    """Of five edits, the last of each key: alice 2, bob none, the default 4."""
    messages: list[tuple[Message, int]] = [
        (quotas(ALICE, 1.0, 1), 1),
        (quotas(BOB, 3.0, 2), 2),
        (quotas(ALICE, 2.0, 3), 3),
        (Removed(BOB), 4),
        (quotas(ANY, 4.0, 5), 5),
        (Heartbeat(0, 5), 5),
    ]
    return [(encode("pay", message), issued_ms) for message, issued_ms in messages]


@pytest.mark.parametrize("replays", [1, 2, 3])
def test_the_last_message_of_a_key_wins_and_reading_again_changes_nothing(replays: int) -> None:
    compacted = {message.key: (message, issued_ms) for message, issued_ms in log()}
    for messages in (log() * replays, list(compacted.values()) * replays, [*log(), *compacted.values()]):
        found = gate()
        for message, issued_ms in messages:
            found.take(*message, issued_ms, 0)
        assert [limit(found, user=user) for user in ("alice", "bob", "carol")] == [2.0, 4.0, 4.0]


def test_the_memory_of_clients_that_went_away_is_given_back() -> None:
    found = told(quotas(Entity(None, DEFAULT), 1e6))
    for number in range(100):
        found.check(Request(Api.PRODUCE, "u", f"app-{number}", 1, 9, 1), number)
    # After 12 s without a request a bucket equals a new one: 11 samples of 1 s and one more.
    found.check(Request(Api.PRODUCE, "u", "new", 1, 9, 1), 13 * S)
    assert found.ring_count == 2  # of produce and request time
