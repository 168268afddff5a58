"""Generated buckets, each throttled by one known main cause, beside smaller changes that are no cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kquota_spark.model.attribution.counterfactuals import LimitFrom
from kquota_spark.model.attribution.detectors import Cause
from tests.support.attribution.simulated import FROM_MS, Recording, Sender, sent
from tests.support.chance import Chance

Made = Callable[[Chance], Recording]
_LEAST, _MOST = 40_000, 400_000


def _limit(chance: Chance) -> float:
    return float(chance.randrange(_LEAST, _MOST, 1_000))


def _only(limit: float) -> tuple[LimitFrom, ...]:
    return (LimitFrom(0, limit),)


def _senders(
    chance: Chance,
    rate: Callable[[int], float],
    name: str = "alice",
    connections: int | None = None,
    **more: object,
) -> list[Sender]:
    """Connections that together send at a rate (bytes per second) if they are not throttled."""
    count = connections or chance.randint(1, 4)
    pace_ms = chance.uniform(150, 700) * count
    return [
        Sender((name, "app"), lambda at: rate(at) / count * pace_ms / 1_000, lambda _: pace_ms, **more)  # type: ignore[arg-type]
        for _ in range(count)
    ]


def _from(at_ms: int, before: float, after: float) -> Callable[[int], float]:
    return lambda time_ms: before if time_ms < at_ms else after


def _always(rate: float) -> Callable[[int], float]:
    return lambda _: rate


def limit_cut(chance: Chance) -> Recording:
    """A limit that fitted was lowered below what the client sends, which grows a little."""
    limit, used = _limit(chance), chance.uniform(0.6, 0.9)
    at_ms = FROM_MS + 1_000 * chance.randrange(-100, 60)
    limits = (LimitFrom(0, limit), LimitFrom(at_ms, limit * used * chance.uniform(0.4, 0.8)))
    rate = _from(FROM_MS, limit * used, limit * used * chance.uniform(0.95, 1.1))
    return Recording(sent(_senders(chance, rate), limits, chance), limits)


def growth(chance: Chance) -> Recording:
    """A client sends much more; the limit was raised a little."""
    limit, used = _limit(chance), chance.uniform(0.45, 0.8)
    limits = (LimitFrom(0, limit), LimitFrom(FROM_MS + 30_000, limit * chance.uniform(1.0, 1.05)))
    rate = _from(FROM_MS + chance.randrange(60_000), limit * used, limit * chance.uniform(1.25, 2.2))
    return Recording(sent(_senders(chance, rate), limits, chance), limits)


def new_client(chance: Chance) -> Recording:
    """A client that nobody has seen before joins one that fitted."""
    limit, used = _limit(chance), chance.uniform(0.5, 0.8)
    begin_ms = FROM_MS + chance.randrange(60_000)
    new = limit * chance.uniform(0.5, 1.2)
    senders = [
        *_senders(chance, lambda _: limit * used),
        *_senders(chance, lambda _: new, "newcomer", from_ms=begin_ms),
    ]
    return Recording(sent(senders, _only(limit), chance), _only(limit))


def shared_bucket(chance: Chance) -> Recording:
    """Several clients, each far below the limit, always want more than it together."""
    limit, count = _limit(chance), chance.randint(2, 5)
    whole = limit * chance.uniform(1.15, 1.6)
    senders = []
    for name in range(count):
        own = min(whole / count * chance.uniform(0.85, 1.1), 0.85 * limit)
        senders += _senders(chance, _always(own), f"user{name}")
    return Recording(sent(senders, _only(limit), chance), _only(limit))


def burst(chance: Chance) -> Recording:
    """After a pause, a client sends in seconds what its limit lets through in a minute."""
    limit = _limit(chance)
    every_ms, begin_ms = chance.randrange(110_000, 150_000), FROM_MS + chance.randrange(20_000, 60_000)
    length_ms = chance.randrange(1_500, 4_000)
    rate = limit * chance.uniform(18, 40) * 1_000 / length_ms

    def size(time_ms: int) -> float:
        return rate * 0.2 if (time_ms - begin_ms) % every_ms < length_ms else 0.0

    count = chance.randint(1, 3)
    senders = [Sender(("alice", "app"), lambda at: size(at) / count, lambda _: 200.0) for _ in range(count)]
    return Recording(sent(senders, _only(limit), chance), _only(limit))


def hot_broker(chance: Chance) -> Recording:
    """The traffic of three brokers moves to one of them."""
    limit, at_ms = _limit(chance), FROM_MS + chance.randrange(60_000)
    hot = chance.randint(1, 3)
    rate = limit * chance.uniform(1.3, 2.3)

    def broker(time_ms: int) -> int:
        if time_ms >= at_ms and chance.random() < 0.9:
            return hot
        return chance.randint(1, 3)

    senders = _senders(chance, lambda _: rate, broker=broker)
    return Recording(sent(senders, _only(limit), chance), _only(limit), (1, 2, 3))


def repeats(chance: Chance) -> Recording:
    """A client sends its requests again on new connections."""
    limit, used = _limit(chance), chance.uniform(0.6, 0.85)
    at_ms, count = FROM_MS + chance.randrange(60_000), chance.randint(1, 2)

    def retries(time_ms: int) -> int:
        return count if time_ms >= at_ms and chance.random() < 0.9 else 0

    senders = _senders(chance, lambda _: limit * used, connections=chance.randint(1, 2))
    # As fast as before, although each request comes several times.
    for sender in senders:
        usual_ms, sender.retries = sender.pace_ms(at_ms), retries
        sender.pace_ms = _from(at_ms, usual_ms, usual_ms / (count + 1))
    return Recording(sent(senders, _only(limit), chance), _only(limit))


def steady(chance: Chance) -> Recording:
    """A client always wants a little more than its limit."""
    limit = _limit(chance)
    rate = limit * chance.uniform(1.1, 1.8)
    return Recording(sent(_senders(chance, lambda _: rate), _only(limit), chance), _only(limit))


CAUSES: Mapping[Cause, Made] = {
    Cause.LIMIT_CUT: limit_cut,
    Cause.GROWTH: growth,
    Cause.NEW_CLIENT: new_client,
    Cause.SHARED_BUCKET: shared_bucket,
    Cause.BURST: burst,
    Cause.HOT_BROKER: hot_broker,
    Cause.REPEATS: repeats,
    Cause.STEADY: steady,
}


def calm(chance: Chance) -> Recording:
    """A client below its limit."""
    limit = _limit(chance)
    rate = _from(FROM_MS, limit * 0.6, limit * chance.uniform(0.5, 0.7))
    return Recording(sent(_senders(chance, rate), _only(limit), chance), _only(limit))


def raised(chance: Chance) -> Recording:
    """A client at its limit, which is raised a little."""
    limit = _limit(chance)
    limits = (LimitFrom(0, limit), LimitFrom(FROM_MS + 60_000, limit * 1.1))
    rate = limit * chance.uniform(1.2, 1.6)
    return Recording(sent(_senders(chance, lambda _: rate), limits, chance), limits)


def harmless_cut(chance: Chance) -> Recording:
    """A cut to a limit that is still far above what the client sends."""
    limit = _limit(chance)
    limits = (LimitFrom(0, limit), LimitFrom(FROM_MS + 30_000, limit * 0.8))
    return Recording(sent(_senders(chance, lambda _: limit * 0.5), limits, chance), limits)


def small_newcomer(chance: Chance) -> Recording:
    """A client at its limit, and a new one that sends next to nothing."""
    limit = _limit(chance)
    rate = limit * chance.uniform(1.3, 1.8)
    senders = [
        *_senders(chance, lambda _: rate),
        *_senders(chance, lambda _: limit * 0.01, "newcomer", connections=1, from_ms=FROM_MS + 20_000),
    ]
    return Recording(sent(senders, _only(limit), chance), _only(limit))


def late(chance: Chance) -> Recording:
    """A client that always wants more than its limit, after a pause of one minute."""
    limit = _limit(chance)
    wanted = limit * chance.uniform(1.15, 2.5)
    begin_ms = FROM_MS - 5_000

    def rate(time_ms: int) -> float:
        return 0.0 if begin_ms - 60_000 <= time_ms < begin_ms else wanted

    return Recording(sent(_senders(chance, rate), _only(limit), chance), _only(limit))


NULLS: tuple[Made, ...] = (calm, raised, harmless_cut, small_newcomer, steady, late)
"""Nobody is to be blamed: nothing is throttled, or all is as it was before."""


def mixture(chance: Chance) -> Recording:
    """Growth, and a smaller one of a second client, after a cut that alone would do little."""
    limit = _limit(chance)
    limits = (LimitFrom(0, limit), LimitFrom(FROM_MS + 20_000, limit * chance.uniform(0.9, 0.97)))
    grown = _from(FROM_MS + 10_000, limit * 0.4, limit * chance.uniform(1.1, 1.6))
    other = _from(FROM_MS + 10_000, limit * 0.2, limit * chance.uniform(0.2, 0.24))
    senders = [*_senders(chance, grown), *_senders(chance, other, "beth", connections=1)]
    return Recording(sent(senders, limits, chance), limits)
