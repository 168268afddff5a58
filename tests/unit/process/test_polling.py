"""A thread that polls until it is stopped, or until a call fails."""

from __future__ import annotations

import threading
from queue import Queue

import pytest

from kquota_spark.audit.upkeep import Upkeep
from kquota_spark.errors import UserError
from kquota_spark.kafka.broker_configs import BrokerConfigs
from kquota_spark.process.polling import Polling
from kquota_spark.quotas.leaders import LeaderWatcher


@pytest.mark.parametrize("kind", [BrokerConfigs, LeaderWatcher, Upkeep])
def test_no_method_of_a_poller_is_hidden_by_an_attribute_that_polling_sets(kind: type[Polling]) -> None:
    # `LeaderWatcher._poll` was: it called itself until the stack was full.
    assert {*vars(kind)} & {*vars(Polling("any", 1, print))} == set()


def test_it_polls_until_it_is_stopped() -> None:
    calls: list[str] = []
    third = threading.Event()

    def poll() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 3:
            third.set()

    polling = Polling("asking somebody", 1, poll)
    running = [polling.is_running]
    polling.start()
    running.append(polling.is_running)
    assert third.wait(60)
    polling.stop()
    running.append(polling.is_running)
    assert running == [False, True, False]
    made = len(calls)
    assert set(calls) == {"asking somebody"}
    polling.check()
    assert len(calls) == made


def test_what_ends_it_is_raised_where_it_is_looked_after(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Semaphore(0)

    def poll() -> None:
        asked.release()
        raise UserError("the table cannot be written")

    polling = Polling("asking somebody", 1, poll)
    polling.start()
    assert asked.acquire(timeout=60)
    polling.stop()
    with pytest.raises(UserError, match="the table cannot be written"):
        polling.check()
    assert caplog.messages == ["asking somebody has ended: the table cannot be written"]
    assert not asked.acquire(blocking=False)


def test_a_call_can_be_had_at_once() -> None:
    calls: Queue[None] = Queue()
    polling = Polling("asking", 3_600_000, lambda: calls.put(None))
    polling.start()
    for _ in range(2):
        polling.wake()
        calls.get(timeout=10)
    polling.stop()
    assert calls.empty()
