"""Who slowed whom: the client whose work goes with the waiting of the others is named, and nobody on calm brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from kquota_spark.model.interference.suspects import SlowBroker, slow_broker
from kquota_spark.model.interference.windows import Client, Served, Windows

T0_MS = 1_000_000
BEFORE, COUNT = 10, 20
"""Windows of one second before the period, and in all."""
SLOW = range(12, 18)

Second = tuple[float, float]
"""Queue time and local time of the one request of a second, ms."""


def _judged(
    clients: Mapping[str, Mapping[int, Second]],
    throttled: Collection[tuple[str, int]] = (),
    before: int = BEFORE,
) -> SlowBroker:
    """One broker; each request is handled at the end of its second."""
    windows = Windows(T0_MS, T0_MS + 1_000 * before, T0_MS + 1_000 * COUNT)
    for user, seconds in clients.items():
        for second, (queue_ms, local_ms) in seconds.items():
            handled_ms = T0_MS + 1_000 * second + 999
            is_throttled = (user, second) in throttled
            windows.add(Served(handled_ms, user, "app", queue_ms, local_ms, 0, 0, is_throttled))
    return slow_broker(windows)


def _waiting(
    local_ms: float = 10.0, slow: Collection[int] = SLOW, queue_ms: float = 20.0
) -> dict[int, Second]:
    """A client that waits 1 ms, and longer in some seconds."""
    return {second: (queue_ms if second in slow else 1.0, local_ms) for second in range(COUNT)}


def _working(local_ms: float, seconds: Collection[int]) -> dict[int, Second]:
    return dict.fromkeys(seconds, (1.0, local_ms))


def _named(found: SlowBroker) -> list[str | None]:
    return [suspect.client[0] for suspect in found.suspects if suspect.is_named]


def test_the_client_whose_work_goes_with_the_waiting_of_others_is_named_with_its_figures() -> None:
    found = _judged({"alice": _waiting(), "bob": _waiting(), "hog": _working(900, SLOW), "big": _waiting(80)})
    assert _named(found) == ["hog"]
    [hog, *_] = found.suspects
    # Usual is 1 ms, so more than 2 ms is long. 20 ms is 10 times that: 1 - 1/10 in each second of its work.
    assert hog.correlation == pytest.approx(0.9)
    assert hog.share == pytest.approx(900 / (900 + 10 + 10 + 80))
    assert (hog.usual_share, hog.explained) == (0.0, 1.0)
    assert hog.busy_threads == pytest.approx(0.9)
    assert [(victim.client[0], victim.slow_windows, victim.windows) for victim in found.victims] == [
        ("alice", 6, 10), ("big", 6, 10), ("bob", 6, 10),
    ]  # fmt: skip
    assert (found.slow_windows, found.windows) == (6, 10)
    # 10 requests of 1 ms before; then 4 of 1 ms and 6 of 20 ms. The step next to 20 ms is 2 ** (35 / 8).
    alice = found.victims[0]
    assert (alice.before.median_ms, alice.before.p95_ms) == (1.0, 1.0)
    assert (alice.usual_ms, alice.slow_ms) == (1.0, 20.0)
    assert alice.during.median_ms == pytest.approx(2 ** (35 / 8))


def test_a_large_client_that_is_as_large_as_before_is_not_named() -> None:
    found = _judged({"alice": _waiting(), "bob": _waiting(), "big": _working(700, range(COUNT))})
    assert _named(found) == []
    [big] = [suspect for suspect in found.suspects if suspect.client[0] == "big"]
    # 6 of its 20 seconds are slow: (6 * 0.9 + 14 * (1/2 - 1)) / 20.
    assert big.correlation == pytest.approx(-0.08)
    assert big.usual_share == pytest.approx(700 / 720)


def test_clients_that_only_wait_are_not_named() -> None:
    """Their own work takes longer as well: it shares the processors with what slows them."""
    slowed = {second: ((20.0, 300.0) if second in SLOW else (1.0, 100.0)) for second in range(COUNT)}
    found = _judged({"alice": slowed, "bob": slowed, "carol": slowed})
    assert len(found.victims) == 3
    assert _named(found) == []


def test_one_second_of_much_work_does_not_explain_six_slow_ones() -> None:
    found = _judged({"alice": _waiting(), "bob": _waiting(), "spike": _working(1_900, [12])})
    assert found.slow_windows == 6
    assert _named(found) == []


def test_a_suspect_works_in_more_than_half_of_the_slow_seconds() -> None:
    def named(seconds: Collection[int]) -> list[str | None]:
        return _named(_judged({"alice": _waiting(), "bob": _waiting(), "hog": _working(900, seconds)}))

    assert named([12, 13, 14]) == []
    assert named([12, 13, 14, 15]) == ["hog"]


def test_the_usual_share_is_that_of_the_time_before_also_if_the_client_never_stops() -> None:
    """From second 10 on the hog works all the time, and others wait long in six of its ten seconds."""
    found = _judged({"alice": _waiting(), "bob": _waiting(), "hog": _working(900, range(BEFORE, COUNT))})
    [hog, *_] = found.suspects
    # (6 * 0.9 + 4 * (1/2 - 1)) / 10; in the four other seconds its share was 900 / 920 as well.
    assert hog.correlation == pytest.approx(0.34)
    assert hog.usual_share == 0.0
    assert hog.share == pytest.approx(900 / 920)


def test_waiting_for_the_network_threads_counts_too() -> None:
    windows = Windows(T0_MS, T0_MS + 1_000 * BEFORE, T0_MS + 1_000 * COUNT)
    for second in range(COUNT):
        long_ms = 2.0 if second in SLOW else 0.0
        windows.add(Served(T0_MS + 1_000 * second + 500, "alice", "app", 0.1, 1, long_ms, long_ms, False))
    [alice] = slow_broker(windows).victims
    # 0.1 ms for a handler, 2 ms for a network thread, and 2 ms until it had sent.
    assert alice.usual_ms == pytest.approx(0.1)
    assert alice.slow_ms == pytest.approx(4.1)


def test_a_client_that_keeps_no_handler_busy_is_not_named() -> None:
    found = _judged({"alice": _waiting(1), "bob": _waiting(1), "small": _working(50, SLOW)})
    [small, *_] = found.suspects
    assert small.client[0] == "small"
    assert small.correlation == pytest.approx(0.9)
    assert small.busy_threads == pytest.approx(0.05)
    assert _named(found) == []


def test_without_a_victim_nobody_is_named() -> None:
    calm = _waiting(slow=())
    found = _judged({"alice": calm, "bob": calm, "hog": _working(900, SLOW)})
    assert (found.victims, found.suspects, found.slow_windows) == ((), (), 0)


def test_a_client_is_no_victim_of_itself() -> None:
    alone = {second: ((20.0, 900.0) if second in SLOW else (1.0, 10.0)) for second in range(COUNT)}
    found = _judged({"hog": alone, "calm": _waiting(slow=())})
    assert _named(found) == []


def test_two_slow_seconds_are_chance_and_three_are_not() -> None:
    hog = _working(900, [12, 13, 14])
    assert _judged({"alice": _waiting(slow=[12, 13]), "hog": hog}).victims == ()
    found = _judged({"alice": _waiting(slow=[12, 13, 14]), "hog": hog})
    assert [victim.client[0] for victim in found.victims] == ["alice"]
    assert _named(found) == ["hog"]


def test_a_rise_to_less_than_twice_or_by_less_than_a_millisecond_is_none() -> None:
    hog = _working(900, SLOW)
    usual_short = {second: (0.9 if second in SLOW else 0.01, 10.0) for second in range(COUNT)}
    assert _judged({"alice": usual_short, "hog": hog}).victims == ()
    usual_5_ms = {second: (9.9 if second in SLOW else 5.0, 10.0) for second in range(COUNT)}
    assert _judged({"alice": usual_5_ms, "hog": hog}).victims == ()


def test_throttled_seconds_do_not_count_as_waiting() -> None:
    throttled = {("alice", second) for second in SLOW}
    assert _judged({"alice": _waiting(), "hog": _working(900, SLOW)}, throttled).victims == ()


def test_without_a_time_before_the_calm_quarter_of_the_windows_is_usual() -> None:
    found = _judged({"alice": _waiting(), "bob": _waiting(), "hog": _working(900, SLOW)}, before=0)
    assert _named(found) == ["hog"]
    # 15 of 20 seconds are slow; the calm quarter ends with the sixth.
    mostly = _waiting(slow=range(4, 19))
    assert _judged({"alice": mostly, "hog": _working(900, range(4, 19))}, before=0).victims == ()


def test_the_client_with_more_of_the_work_is_first() -> None:
    found = _judged(
        {"alice": _waiting(), "bob": _waiting(), "ann": _working(300, SLOW), "zoe": _working(600, SLOW)}
    )
    assert _named(found) == ["zoe", "ann"]


def test_a_broker_without_requests_has_no_answer() -> None:
    client: Client = ("alice", "app")
    found = slow_broker(Windows(T0_MS, T0_MS + 1_000, T0_MS + 2_000))
    assert client not in [victim.client for victim in found.victims]
    assert (found.before.median_ms, found.windows, found.suspects) == (None, 0, ())
