"""Clients of the simulator: what they send, and how they react to a throttle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kquota_spark.model.measure.apis import Api, does_client_hold_back


class Behaviour(Enum):
    """What a client does when a response reports a throttle."""

    OBEYING = "waits the time out before it sends on"
    IGNORING = "sends on at once"
    RECONNECTING = "opens another connection and sends on there"


@dataclass(frozen=True, slots=True)
class Client:
    """One client that produces or fetches on one connection at a time.

    Args:
        client_id: client id, also the name in results. Clients with the same one are counted as one.
        size_bytes: size of each produce request, or of each fetch response that is not throttled.
        api: produce or fetch.
        version: version of the requests. An obeying client waits only from the version at which Kafka's clients do.
        user: principal name.
        interval_ms: shortest time from one request to the next; with 0 the client sends as soon as it may.
        jitter_ms: most time that is added to the interval, drawn again for each request.
        max_in_flight: most requests without a response (pipelining, if above 1).
        behaviour: reaction to a throttle, see `Behaviour`.
        acks: acks of a produce. With 0 there is no response, so the client learns of no throttle.
        thread_time_ns: time that each request takes on the broker's threads.
        first_send_ms: time of the first request.
    """

    client_id: str
    size_bytes: int
    api: Api = Api.PRODUCE
    version: int = 8
    user: str = ""
    interval_ms: int = 0
    jitter_ms: int = 0
    max_in_flight: int = 1
    behaviour: Behaviour = Behaviour.OBEYING
    acks: int = -1
    thread_time_ns: int = 0
    first_send_ms: int = 0

    def __post_init__(self) -> None:
        if self.api not in (Api.PRODUCE, Api.FETCH):
            raise ValueError(f"{self.client_id}: a client produces or fetches, it does not {self.api.name}")
        if self.behaviour is Behaviour.RECONNECTING and self.max_in_flight != 1:
            raise ValueError(f"{self.client_id}: a reconnecting client has one request in flight")
        if self.has_no_responses and self.interval_ms < 1:
            raise ValueError(f"{self.client_id}: acks=0 without an interval sends without end")

    @property
    def has_no_responses(self) -> bool:
        """Whether the client gets no responses from the broker."""
        return self.api is Api.PRODUCE and self.acks == 0

    def hold_ms(self, throttle_ms: int) -> int:
        """How long (ms) the client sends nothing after a response with this throttle."""
        if self.behaviour is Behaviour.OBEYING and does_client_hold_back(self.api, self.version):
            return max(throttle_ms, 0)
        return 0
