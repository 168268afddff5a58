"""One driver on an object store: who takes a lease, who is refused, and what a driver says that was overtaken."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.audit.past.maintain import maintain
from kquota_spark.checkpoints.driver_lease import (
    Beat,
    Hold,
    Lease,
    Sight,
    StoppedWaitingError,
    Watched,
    lease_holder,
    only_driver,
    taken_lease,
)
from kquota_spark.checkpoints.driver_lock import IN_USE
from kquota_spark.checkpoints.lease_table import LeaseTable
from kquota_spark.checkpoints.notes import read_note
from kquota_spark.checkpoints.runs import begun_run
from kquota_spark.config.rules import Duration
from kquota_spark.config.settings import Settings, Stream
from kquota_spark.errors import UserError
from tests.support.clock import set_clock
from tests.support.programs.s3_server import s3_server

WHO = f"pid {os.getpid()}, host {socket.gethostname()}"
LEASE_S = 60.0


def beat(count: int, number: int = 7, *, is_released: bool = False) -> Beat:
    return Beat(number, count, "host-1", 17, is_released)


@pytest.mark.parametrize(
    ("looks", "sights"),
    [
        pytest.param([(0, None, 0.0)], ["free"], id="never taken"),
        pytest.param([(7, beat(3, is_released=True), 0.0)], ["free"], id="released"),
        pytest.param([(7, beat(3), 0.0), (7, beat(4), 9.0)], ["silent", "alive"], id="beats"),
        # 60.0 s after the first look the same beat has been there for the lease time; 59.9 s is too early.
        pytest.param(
            [(7, beat(3), 5.0), (7, beat(3), 64.9), (7, beat(3), 65.0)], ["silent", "silent", "free"], id="killed"
        ),
        pytest.param(
            [(7, None, 0.0), (7, None, 59.9), (7, None, 60.0)], ["silent", "silent", "free"], id="killed at once"
        ),
        pytest.param([(7, None, 0.0), (7, beat(1), 1.0)], ["silent", "alive"], id="its first beat"),
        pytest.param([(7, beat(3), 0.0), (8, beat(3), 1.0)], ["silent", "alive"], id="another was faster"),
        # A driver that was paused says of lease 6 what it likes.
        pytest.param(
            [(7, None, 0.0), (7, beat(9, 6), 30.0), (7, beat(10, 6), 59.9), (7, beat(11, 6), 60.0)],
            ["silent", "silent", "silent", "free"],
            id="beats of an older lease",
        ),
        pytest.param([(7, beat(9, 6, is_released=True), 0.0)], ["silent"], id="an older one was released"),
    ],
)  # fmt: skip
def test_a_lease_is_free_when_its_beat_was_the_same_for_the_lease_time_by_the_observers_clock(
    looks: list[tuple[int, Beat | None, float]], sights: list[str]
) -> None:
    watched = Watched(LEASE_S)
    assert [watched.sight(*look).value for look in looks] == sights


def test_a_holder_that_beats_once_in_the_time_is_never_replaced() -> None:
    watched = Watched(LEASE_S)
    seen = [watched.sight(7, beat(int(now_s) // 59), float(now_s)) for now_s in range(600)]
    assert Sight.FREE not in seen


class Clock:
    """Time that passes when somebody waits; `ended_s` is when the program is asked to end."""

    def __init__(self, ended_s: float = 1e9) -> None:
        self.now_s, self._ended_s = 0.0, ended_s

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s >= self._ended_s


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["local", "s3"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    stream = Stream(lease_time=Duration(60_000))
    if request.param == "local":
        return Settings(checkpoints=str(tmp_path / "checkpoints"), stream=stream)
    address = request.getfixturevalue("endpoint")
    options = {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    options |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    return Settings(checkpoints=f"s3a://lake/{tmp_path.name}", storage_options=options, stream=stream)


def taken(settings: Settings, clock: Clock, told: list[str] | None = None, name: str = "log") -> Lease:
    return taken_lease(
        settings, settings.checkpoints, name, IN_USE,
        notice=(told if told is not None else []).append, is_stopped=clock.wait, clock_s=clock,
    )  # fmt: skip


def test_of_two_that_take_the_same_number_one_is_refused(settings: Settings) -> None:
    place = f"{settings.checkpoints}/leases"
    first, second, of_jmx = (LeaseTable(settings, place) for _ in range(3))
    assert (first.number("log"), second.number("log"), of_jmx.number("jmx")) == (0, 0, 0)
    assert first.take("log", 0)
    assert not second.take("log", 0)
    assert of_jmx.take("jmx", 0)  # another name is no conflict
    assert (first.number("log"), second.number("log")) == (1, 1)
    assert first.take("log", 1)
    assert not second.take("log", 1)
    assert [LeaseTable(settings, place).number(name) for name in ("log", "jmx", "other")] == [2, 1, 0]


def test_the_driver_after_a_killed_one_waits_for_the_lease_time_and_says_so(settings: Settings) -> None:
    taken(settings, Clock()).beat()  # and no more
    clock, told = Clock(), list[str]()
    lease = taken(settings, clock, told)
    assert (lease.number, clock.now_s) == (2, LEASE_S)
    assert told == [f"{settings.checkpoints}: waiting up to 60 s for a sign of life of its driver ({WHO})"]


def test_the_driver_after_one_that_ended_well_waits_for_nothing(settings: Settings) -> None:
    with taken(settings, Clock()) as lease:
        assert lease.number == 1
    clock = Clock()
    assert taken(settings, clock).number == 2
    assert clock.now_s == 0.0


def test_a_second_driver_is_refused_at_the_first_beat_and_leaves_all_as_it_was(settings: Settings) -> None:
    holder, place = taken(settings, Clock()), f"{settings.checkpoints}/leases"
    holder.beat()
    clock = Clock()

    def waits(seconds: float) -> bool:
        if clock.now_s == 9.5:
            holder.beat()  # its third, 10 s after its second
        return clock.wait(seconds)

    with pytest.raises(UserError) as refused:
        taken_lease(
            settings, settings.checkpoints, "log", IN_USE, notice=print, is_stopped=waits, clock_s=clock
        )
    assert str(refused.value) == (
        f"checkpoints {settings.checkpoints} are in use by another driver ({WHO}): "
        "stop it first, or give checkpoints: another path"
    )
    assert clock.now_s == 10.0
    assert LeaseTable(settings, place).number("log") == 1
    holder.require()


def test_a_driver_that_was_paused_finds_the_newer_lease_and_ends_with_one_line(settings: Settings) -> None:
    paused = taken(settings, Clock())
    paused.beat()
    with taken(settings, Clock()) as successor:
        paused.check()  # it has not asked yet
        line = (
            f"^{re.escape(settings.checkpoints)}: another driver has taken over the lease of log "
            rf"\(host {re.escape(socket.gethostname())}, pid {os.getpid()}\), so this one has ended: "
            "let one scheduler start it, once$"
        )
        for ask in (paused.beat, paused.check, paused.require):
            with pytest.raises(UserError, match=line):
                ask()
        successor.require()
        note = read_note(settings, f"{settings.checkpoints}/log.lease.json") or b""
        assert b'"number":2' in note


@pytest.mark.parametrize("settings", ["s3"], indirect=True)
def test_the_note_of_a_holder_has_the_times_for_kquota_status(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_ms = iter([1_000, 2_000, 12_000])
    set_clock(monkeypatch, lambda: next(times_ms))
    assert lease_holder(settings, settings.checkpoints, "log") is None
    lease = taken(settings, Clock())
    assert lease_holder(settings, settings.checkpoints, "log") == (1, None)
    for count, renewed_ms in ((1, 2_000), (2, 12_000)):
        lease.beat()
        written = Beat(1, count, socket.gethostname(), os.getpid(), since_ms=1_000, renewed_ms=renewed_ms)
        assert lease_holder(settings, settings.checkpoints, "log") == (1, written)


def test_a_program_that_is_asked_to_end_while_it_waits_ends(settings: Settings) -> None:
    taken(settings, Clock()).beat()
    with pytest.raises(StoppedWaitingError):
        taken(settings, Clock(ended_s=2.0))


def test_a_late_note_of_an_overtaken_run_does_not_end_its_successor(tmp_path: Path) -> None:
    settings, older, newer = Settings(checkpoints=str(tmp_path)), Hold(), Hold()
    older.number, newer.number = 5, 6
    successor = begun_run(settings, "log", newer)
    begun_run(settings, "log", older)  # paused between its lease and its note
    successor.require_newest()
    begun_run(settings, "log", newer)
    with pytest.raises(UserError, match="another driver took it over"):
        successor.require_newest()


@pytest.mark.parametrize("settings", ["s3"], indirect=True)
def test_a_second_maintain_on_an_object_store_is_refused(settings: Settings) -> None:
    settings = settings.changed(tables="s3a://lake/tables", stream=Stream(lease_time=Duration(3_000)))
    with only_driver(settings, "s3a://lake/tables/_kquota", "maintain") as hold:
        assert hold.number == 1
        with pytest.raises(
            UserError, match=rf"^another process maintains these tables \({WHO}, lock in s3a://"
        ):
            list(maintain(settings, 0, is_dry_run=False))
