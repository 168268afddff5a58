"""One trouble after the other, drawn by chance; each is over before the next, and the parts have some time to heal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.chance import Chance
from tests.support.clusters.outages import kill, pause, resume
from tests.support.clusters.zookeeper_edits import set_quota
from tests.support.trouble.world import EDITED, QUOTA, World

_LOOK_S = 0.5
_LASTS_S, _HEALS_S = (2.0, 9.0), (3.0, 12.0)
Trouble = Callable[[World, Chance], None]


def _killed(name: str) -> Trouble:
    return lambda world, _: world.parts[name].kill()


def _paused(name: str) -> Trouble:
    def trouble(world: World, chance: Chance) -> None:
        world.parts[name].send(signal.SIGSTOP)
        try:
            _pass(world, chance.uniform(*_LASTS_S))
        finally:
            world.parts[name].send(signal.SIGCONT)

    return trouble


def _paused_server(name: int | str) -> Trouble:
    def trouble(world: World, chance: Chance) -> None:
        pause(world.cluster, name)
        try:
            _pass(world, chance.uniform(*_LASTS_S))
        finally:
            resume(world.cluster, name)

    return trouble


def _killed_server(name: int | str) -> Trouble:
    def trouble(world: World, _: Chance) -> None:
        kill(world.cluster, name)
        world.cluster.start(name)

    return trouble


def _cut(name: str) -> Trouble:
    def trouble(world: World, chance: Chance) -> None:
        world.networks[name].cut()
        try:
            _pass(world, chance.uniform(*_LASTS_S))
        finally:
            world.networks[name].mend()

    return trouble


def _full_disk(world: World, chance: Chance) -> None:
    with _ballast(world.disk / "ballast"):
        _pass(world, chance.uniform(*_LASTS_S))


@contextmanager
def _ballast(file: Path) -> Iterator[None]:
    try:
        with file.open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(1 << 16))
            except OSError:
                pass
        yield
    finally:
        file.unlink()


def _edited(world: World, chance: Chance) -> None:
    limit = QUOTA + chance.randrange(9_999)
    set_quota(world.cluster.zookeeper_connect, client_id=EDITED, producer_byte_rate=limit)


def _maintained(world: World, _: Chance) -> None:
    done = world.run("maintain")
    assert done.returncode == 0, done.stderr


def _restated(world: World, _: Chance) -> None:
    now_ms = time.time_ns() // 1_000_000
    # A period that is closed; with nothing in it there is nothing to restate.
    done = world.run("jobs/restate.py", "--from", str(now_ms - 90_000), "--to", str(now_ms - 45_000))
    assert done.returncode == 0 or "Traceback" not in done.stderr, done.stderr


TROUBLES: dict[str, Trouble] = {
    "kill audit": _killed("audit"),
    "kill ship": _killed("ship"),
    "kill enforce": _killed("enforce"),
    "kill exporter": _killed("exporter"),
    "pause audit": _paused("audit"),
    "pause ship": _paused("ship"),
    "pause enforce": _paused("enforce"),
    "pause zookeeper": _paused_server("zookeeper"),
    "pause broker": _paused_server(1),
    "kill zookeeper": _killed_server("zookeeper"),
    "kill broker": _killed_server(1),
    "cut kafka": _cut("kafka"),
    "cut zookeeper": _cut("zookeeper"),
    "fill disk": _full_disk,
    "edit quota": _edited,
    "maintain": _maintained,
    "restate": _restated,
}


def walk(world: World, chance: Chance, seconds: float) -> dict[str, int]:
    """Disturb for so long; how often each trouble came. Every one comes once before any comes twice."""
    began_s, came = time.monotonic(), dict.fromkeys(TROUBLES, 0)
    waiting: list[str] = []
    while time.monotonic() - began_s < seconds:
        if not waiting:
            waiting = chance.sample(sorted(TROUBLES), len(TROUBLES))
        name = waiting.pop()
        print(f"{time.monotonic() - began_s:6.1f} s  {name}", flush=True)
        TROUBLES[name](world, chance)
        came[name] += 1
        _pass(world, chance.uniform(*_HEALS_S))
    return came


def _pass(world: World, seconds: float) -> None:
    """Let time go by, and have parts started that have ended."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        world.look()
        time.sleep(_LOOK_S)
