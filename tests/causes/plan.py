"""The labelled runs: one bucket each, calm for a while, and then throttled by one cause that the plan makes.

Times are seconds since the beginning of the run, rates bytes per second. All is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kquota_spark.model.attribution.detectors import Cause
from kquota_spark.model.quotas.quota_types import QuotaKey
from tests.support.chance import Chance

CALM_S = 75
"""How long nothing happens: more than the least time that the product takes as usual."""
END_S = 147
"""End of a run: a burst needs its whole minute."""
BROKERS = 3
TOPIC = "causes"

Of = Callable[[float], float]
"""A figure at a time."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A connection that produces; it waits for each answer and for its throttle.

    Args:
        client_id: its client id.
        size: bytes of the request that is sent at a time; 0 for none.
        pace_s: mean time between two requests without a throttle.
        broker: place of the broker, from 0.
        from_s: when it begins.
        retries: how often a request is sent again, each time on a new connection, without waiting for throttles.
        does_reconnect: whether it continues on a new connection now and then.
        topic: another topic with one partition, whose leader it takes; it then sends as the feeder, without a quota.
    """

    client_id: str
    size: Of
    pace_s: Of
    broker: int = 0
    from_s: float = 0.0
    retries: Of = lambda _: 0
    does_reconnect: bool = False
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """A connection that fetches new records of a topic of its own.

    Args:
        client_id: its client id.
        topic: a topic with one partition.
        most_bytes: of a fetch.
        resets_s: when it begins again at the oldest record; None for never.
        is_behind: whether it begins with the oldest record.
    """

    client_id: str
    topic: str
    most_bytes: int
    resets_s: float | None = None
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One bucket of a user.

    Args:
        label: the cause that it has, or the name of a null.
        cause: the cause; None if nobody is to be blamed.
        limit: at the beginning, in the unit of its key.
        clients: its connections.
        key: which limit.
        edits: later limits, by time.
        history_bytes: bytes of its topic before the run.
    """

    label: str
    cause: Cause | None
    limit: float
    clients: tuple[Sender | Reader, ...]
    key: QuotaKey = QuotaKey.PRODUCER_BYTE_RATE
    edits: tuple[tuple[float, float], ...] = ()
    history_bytes: int = 0

    @property
    def history(self) -> str:
        """The topic of its readers; empty without readers."""
        return next((client.topic for client in self.clients if client.topic), "")


def user_of(seed: int, label: str) -> str:
    """The user with the quota of a scenario."""
    return f"{label.replace('_', '-')}-{seed}"


def history_of(label: str) -> str:
    """The topic of the readers of a scenario."""
    return f"history-{label.replace('_', '-')}"


def limit_of(chance: Chance) -> float:
    """A limit of bandwidth."""
    return float(chance.randrange(30_000, 80_000, 1_000))


def senders(
    chance: Chance, rate: Of, client_id: str = "app", count: int | None = None, **more: object
) -> tuple[Sender, ...]:
    """Connections that together send at a rate while they are not throttled."""
    connections = count or chance.randint(1, 3)
    pace_s = chance.uniform(0.12, 0.3) * connections
    one = Sender(client_id, lambda at: rate(at) / connections * pace_s, lambda _: pace_s, **more)  # type: ignore[arg-type]
    return (one,) * connections


def stepped(at_s: float, before: float, after: float) -> Of:
    """One figure before a time, and another one from then on."""
    return lambda time_s: before if time_s < at_s else after


def always(rate: float) -> Of:
    """The same figure at all times."""
    return lambda _: rate


def followed(chance: Chance, label: str, rate: Of, **more: object) -> tuple[Sender | Reader, ...]:
    """A consumer that follows what a feeder writes at a rate."""
    topic = history_of(label)
    feeder = senders(chance, rate, "feeder", 1, topic=topic)
    return (*feeder, Reader("app", topic, chance.randrange(24_000, 64_000, 1_000), **more))  # type: ignore[arg-type]


def _at_s(chance: Chance) -> float:
    return CALM_S + chance.uniform(0, 8)


def _limit_cut(chance: Chance) -> Scenario:
    """A limit that fitted is lowered below what the client sends, which grows a little."""
    limit, used, at_s = limit_of(chance), chance.uniform(0.6, 0.85), _at_s(chance)
    rate = stepped(at_s - 4, limit * used, limit * used * chance.uniform(0.95, 1.1))
    lower = round(limit * used * chance.uniform(0.4, 0.8))
    return Scenario("limit_cut", Cause.LIMIT_CUT, limit, senders(chance, rate), edits=((at_s, float(lower)),))


def _growth(chance: Chance) -> Scenario:
    """A client sends or reads much more than before."""
    limit, at_s = limit_of(chance), _at_s(chance)
    rate = stepped(at_s, limit * chance.uniform(0.45, 0.75), limit * chance.uniform(1.3, 2.2))
    if chance.random() < 0.5:
        clients = followed(chance, "growth", rate)
        return Scenario("growth", Cause.GROWTH, limit, clients, QuotaKey.CONSUMER_BYTE_RATE)
    return Scenario("growth", Cause.GROWTH, limit, senders(chance, rate))


def _new_client(chance: Chance) -> Scenario:
    """A client that was never seen before joins one that fitted."""
    limit, used = limit_of(chance), chance.uniform(0.5, 0.75)
    new = limit * chance.uniform(0.6, 1.2)
    clients = senders(chance, always(limit * used)) + senders(
        chance, always(new), "newcomer", from_s=_at_s(chance)
    )
    return Scenario("new_client", Cause.NEW_CLIENT, limit, clients)


def _shared_bucket(chance: Chance) -> Scenario:
    """Several clients, each far below the limit, together always want more than it."""
    limit, count = limit_of(chance), chance.randint(2, 4)
    whole = limit * chance.uniform(1.2, 1.6)
    clients: tuple[Sender, ...] = ()
    for number in range(count):
        own = min(whole / count * chance.uniform(0.9, 1.1), 0.8 * limit)
        clients += senders(chance, always(own), f"app{number}", chance.randint(1, 2))
    return Scenario("shared_bucket", Cause.SHARED_BUCKET, limit, clients)


def _burst(chance: Chance) -> Scenario:
    """A client sends a little, pauses, and sends within seconds what its limit lets through in most of a minute."""
    limit, begin_s = limit_of(chance), CALM_S + chance.uniform(0, 4)
    length_s, pause_s = chance.uniform(2.0, 4.0), begin_s - chance.uniform(20, 35)
    amount = limit * chance.uniform(20, 40)

    def rate(at_s: float) -> float:
        if at_s < pause_s:
            return limit * 0.3
        return amount / length_s if begin_s <= at_s < begin_s + length_s else 0.0

    clients = tuple(Sender("app", lambda at_s: rate(at_s) * 0.2 / 3, always(0.2)) for _ in range(3))
    return Scenario("burst_after_idle", Cause.BURST, limit, clients)


def _backfill(chance: Chance) -> Scenario:
    """A consumer that had read everything begins again with the oldest record."""
    limit = limit_of(chance)
    rate = always(limit * chance.uniform(0.4, 0.7))
    clients = followed(chance, "backfill", rate, resets_s=_at_s(chance))
    key = QuotaKey.CONSUMER_BYTE_RATE
    return Scenario("backfill", Cause.BACKFILL, limit, clients, key, history_bytes=round(90 * limit))


def _small_requests(chance: Chance) -> Scenario:
    """A client sends the same bytes in a hundred times as many requests, under a quota of thread time."""
    at_s, rate = _at_s(chance), chance.uniform(80_000, 160_000)
    count, often_s = 5, chance.uniform(0.006, 0.008)
    pace_s = stepped(at_s, chance.uniform(0.8, 1.5), often_s)
    sender = Sender("app", lambda time_s: rate / count * pace_s(time_s), pace_s)
    limit = round(chance.uniform(1.6, 2.4), 2)
    return Scenario(
        "small_requests", Cause.SMALL_REQUESTS, limit, (sender,) * count, QuotaKey.REQUEST_PERCENTAGE
    )


def _hot_broker(chance: Chance) -> Scenario:
    """The traffic on three brokers moves to one of them."""
    limit, at_s, hot = limit_of(chance), _at_s(chance), chance.randrange(BROKERS)
    whole = limit * chance.uniform(1.4, 2.1)
    clients: tuple[Sender, ...] = ()
    for broker in range(BROKERS):
        later = 0.92 if broker == hot else 0.04
        rate = stepped(at_s, whole / BROKERS, whole * later)
        clients += senders(chance, rate, count=2 if broker == hot else 1, broker=broker)
    return Scenario("hot_broker", Cause.HOT_BROKER, limit, clients)


def _repeats(chance: Chance) -> Scenario:
    """A client does not wait for its answers, and sends each request again on a new connection."""
    limit, at_s = limit_of(chance), _at_s(chance)
    count = chance.randint(1, 2)
    used = chance.uniform(0.65, 0.85) if count == 1 else chance.uniform(0.5, 0.8)
    clients = senders(
        chance, always(limit * used), count=chance.randint(1, 2), retries=stepped(at_s, 0, count)
    )
    return Scenario("repeats", Cause.REPEATS, limit, clients)


def _steady(chance: Chance) -> Scenario:
    """A client always wants more than its limit."""
    limit = limit_of(chance)
    return Scenario("steady", Cause.STEADY, limit, senders(chance, always(limit * chance.uniform(1.15, 1.8))))


CAUSES: Mapping[str, Callable[[Chance], Scenario]] = {
    "limit_cut": _limit_cut,
    "growth": _growth,
    "new_client": _new_client,
    "shared_bucket": _shared_bucket,
    "burst_after_idle": _burst,
    "backfill": _backfill,
    "small_requests": _small_requests,
    "hot_broker": _hot_broker,
    "repeats": _repeats,
    "steady": _steady,
}
"""The scenarios with a cause, by label."""
