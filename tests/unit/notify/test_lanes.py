"""Events wait for a group; a message is the same at each attempt; an hour has room for so many."""

from __future__ import annotations

from kquota_spark.config.routes import Alertmanager, Notifications, Slack
from kquota_spark.notify.news.events import Event
from kquota_spark.notify.news.lanes import Lane, Message, message_id, seal_due

HOUR_MS = 3_600_000


def event(number: int) -> Event:
    return Event(f"demo/violation/e{number}", "violation", "begins", number, number, {})


def sealed(lane: Lane, now_ms: int, wait_ms: int = 30_000, per_hour: int | None = 20) -> list[str]:
    """The ids of what is sealed now."""
    lane.seal("ops", now_ms, wait_ms, per_hour)
    return [] if lane.message is None else [one.event_id[-2:] for one in lane.message.events]


def test_events_within_the_wait_share_a_message() -> None:
    lane = Lane()
    lane.add([event(1)], 1_000)
    lane.add([event(2)], 30_000)
    assert sealed(lane, 30_999) == []
    assert sealed(lane, 31_000) == ["e1", "e2"]


def test_while_a_message_is_on_its_way_the_next_events_wait() -> None:
    lane = Lane()
    lane.add([event(1)], 0)
    assert sealed(lane, 30_000) == ["e1"]
    lane.add([event(2)], 30_001)
    assert sealed(lane, 90_000) == ["e1"]
    lane.delivered(90_000)
    assert sealed(lane, 90_001) == ["e2"]


def test_an_hour_has_room_for_so_many_messages_and_what_is_beyond_shares_the_next_one() -> None:
    lane = Lane()
    for minute in (0, 10):
        lane.add([event(minute // 10)], minute * 60_000)
        assert sealed(lane, minute * 60_000, wait_ms=0, per_hour=2) == [f"e{minute // 10}"]
        lane.delivered(minute * 60_000)
    lane.add([event(2)], 20 * 60_000)
    lane.add([event(3)], 30 * 60_000)
    assert sealed(lane, HOUR_MS - 1, wait_ms=0, per_hour=2) == []
    assert sealed(lane, HOUR_MS, wait_ms=0, per_hour=2) == ["e2", "e3"]


def test_an_alertmanager_gets_each_event_at_once() -> None:
    am = Alertmanager(kind="alertmanager", url="http://am")
    ops = Slack(kind="slack", url="http://ops")
    settings = Notifications(routes={"am": am, "ops": ops}, messages_per_hour=1)
    lanes = {"am": Lane(sent_ms=[0]), "ops": Lane()}
    for lane in lanes.values():
        lane.add([event(1)], 1_000)
    seal_due(lanes, settings, 1_000)
    assert [name for name, lane in lanes.items() if lane.message] == ["am"]


def test_a_message_holds_100_events_and_1000_wait_the_oldest_are_counted() -> None:
    lane = Lane()
    lane.add([event(number) for number in range(1_003)], 0)
    assert len(sealed(lane, 30_000)) == 100
    assert lane.message is not None
    assert (lane.message.events[0], lane.message.left_out) == (event(3), 3)
    assert (len(lane.waiting), lane.left_out) == (900, 0)


def test_pauses_between_attempts_double_up_to_15_minutes() -> None:
    lane = Lane(message=Message("m", 0, [event(1)]))
    assert [lane.failed(0, is_final=False) for _ in range(9)] == [
        5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 900_000,
    ]  # fmt: skip
    assert not lane.is_due(899_999)
    assert lane.is_due(900_000)


def test_a_message_is_given_up_after_a_day_or_a_final_refusal_and_counted_in_the_next() -> None:
    for lane, now_ms, is_final in (
        (Lane(message=Message("m", 0, [event(1)], left_out=2)), 24 * HOUR_MS, False),
        (Lane(message=Message("m", 0, [event(1)], left_out=2)), 1, True),
    ):
        assert lane.failed(now_ms, is_final=is_final) is None
        lane.add([event(2)], now_ms)
        assert sealed(lane, now_ms, wait_ms=0) == ["e2"]
        assert lane.message is not None
        assert lane.message.left_out == 3


def test_a_clock_that_was_set_back_stops_no_route() -> None:
    lane = Lane(sent_ms=[HOUR_MS], message=Message("m", HOUR_MS, [event(1)]), next_try_ms=HOUR_MS + 5_000)
    assert lane.is_due(0)
    lane.delivered(0)
    lane.sent_ms = [HOUR_MS]
    lane.add([event(2)], HOUR_MS)
    assert sealed(lane, 0, per_hour=1) == ["e2"]


def test_the_id_of_a_message_is_that_of_its_route_and_events() -> None:
    ids = {
        message_id("ops", [event(1)]),
        message_id("ops", [event(1), event(2)]),
        message_id("x", [event(1)]),
    }
    assert len(ids) == 3
    assert message_id("ops", [event(1)]) == message_id("ops", [event(1)])
