"""Clients of the simulator: what they send, and what they do about a throttle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kquota_spark.model.measure.apis import Api, does_client_hold_back


class Behaviour(Enum):
    """What a client does when a response says that it is throttled."""

    OBEYING = "waits the time out before it sends on"
    IGNORING = "sends on at once"
    RECONNECTING = "opens another connection and sends on there"


@dataclass(frozen=True, slots=True)
class Client:
    """One client that produces or fetches on one connection at a time.

    Args:
        client_id: also its name in results, so unlike every other's in a simulation unless they are to be
            counted as one.
        size_bytes: of each produce request, or of each fetch response that is not throttled.
        api: produce or fetch.
        version: of its requests. An obeying client waits only from the version on from which Kafka's do.
        user: principal name.
        interval_ms: from one request to the next at least; 0 sends as soon as it may.
        jitter_ms: up to so much longer, drawn anew for each request.
        max_in_flight: requests without a response that it allows itself (pipelining, if above 1).
        behaviour: see `Behaviour`.
        acks: of a produce. With 0 there is no response: such a client learns of no throttle.
        thread_time_ns: what each request takes of the broker's threads.
        first_send_ms: when it begins.
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
        """Whether it hears nothing from the broker."""
        return self.api is Api.PRODUCE and self.acks == 0

    def hold_ms(self, throttle_ms: int) -> int:
        """How long it sends nothing after a response with this throttle."""
        if self.behaviour is Behaviour.OBEYING and does_client_hold_back(self.api, self.version):
            return max(throttle_ms, 0)
        return 0
