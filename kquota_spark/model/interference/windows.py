"""The requests of one broker in windows of time: how long each client waited for threads, and how long it used them.

Waiting and using are spread over the windows in which they happened, so a request of three seconds fills three of them.
The memory is bounded: by the number of windows, and by the number of clients with a row of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Client = tuple[str | None, str | None]
"""User and client id. Beyond `MOST_CLIENTS` the client id is None, and then the user too."""
MOST_CLIENTS = 300
"""Maximum number of clients of a broker with a row of their own; then as many users."""
MOST_WINDOWS = 1_200
"""Maximum number of windows: longer periods have wider ones."""
LEAST_WIDTH_MS = 1_000
_STEPS_PER_DOUBLING = 8
"""Steps of the histograms: a quantile is exact to 4.5 %."""
_LEAST_MS = 0.01


class Served(NamedTuple):
    """Where one request spent its time in its broker."""

    handled_ms: float
    """When a request handler was done with it, epoch ms."""
    user: str
    client_id: str
    queue_ms: float
    """Time until a request handler took it (`requestQueueTimeMs`)."""
    local_ms: float
    """Time in which a request handler worked on it (`localTimeMs`)."""
    response_queue_ms: float
    """Time until a network thread took its response (`responseQueueTimeMs`)."""
    send_ms: float
    """Time to send its response (`sendTimeMs`)."""
    is_throttled: bool

    @property
    def waited_ms(self) -> float:
        """Time in which it waited for threads, ms: for a handler, for a network thread, and until that had sent."""
        return self.queue_ms + self.response_queue_ms + self.send_ms


class Cell:
    """One client in one window."""

    __slots__ = ("requests", "throttled", "used_ms", "waited_ms", "waits")

    def __init__(self) -> None:
        self.waits = 0
        """Requests that waited in this window, or were taken in it."""
        self.waited_ms = 0.0
        """The whole waiting times of these requests, together."""
        self.used_ms = 0.0
        """Time of request handlers that it used in this window."""
        self.requests = 0
        """Requests that were handled in this window."""
        self.throttled = 0
        """Those of them with a throttle."""

    @property
    def mean_ms(self) -> float:
        """The mean waiting time of its requests; 0 without one."""
        return self.waited_ms / self.waits if self.waits else 0.0


class Histogram:
    """How often a waiting time occurs, in steps of 9 %."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value_ms: float) -> None:
        """Count one value."""
        self._counts[round(_STEPS_PER_DOUBLING * math.log2(max(value_ms, _LEAST_MS)))] += 1

    @property
    def count(self) -> int:
        """The number of values."""
        return self._counts.total()

    @classmethod
    def sum_of(cls, parts: Iterable[Histogram]) -> Histogram:
        """All values of some histograms."""
        found = cls()
        for part in parts:
            found._counts.update(part._counts)
        return found

    def quantile(self, share: float) -> float | None:
        """The value that a share of the values does not exceed, ms; None without values."""
        wanted, seen = share * self.count, 0
        for step, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return float(2 ** (step / _STEPS_PER_DOUBLING))
        return None


class Windows:
    """The requests of one broker.

    Args:
        from_ms: beginning of the first window, epoch ms.
        since_ms: beginning of the period that is asked about; what is before it is usual.
        to_ms: end of the period, exclusive.
    """

    def __init__(self, from_ms: int, since_ms: int, to_ms: int) -> None:
        self.width_ms = width_of(to_ms - from_ms)
        self.from_ms, self.to_ms = from_ms, to_ms
        self.first_asked = -(-(since_ms - from_ms) // self.width_ms)
        """The first window of the period that is asked about."""
        self.count = -(-(to_ms - from_ms) // self.width_ms)
        self.cells: dict[Client, dict[int, Cell]] = {}
        """By client and number of the window."""
        self.before: dict[Client, Histogram] = {}
        self.during: dict[Client, Histogram] = {}
        """Waiting times by client, before the period and in it."""
        self._since_ms = since_ms
        self.requests = 0

    def add(self, one: Served) -> None:
        """Add a request; one that was over before the windows, or came after them, is left out."""
        taken_ms = one.handled_ms - one.local_ms
        if one.handled_ms < self.from_ms or taken_ms - one.queue_ms >= self.to_ms:
            return
        client = self._client(one)
        cells = self.cells.setdefault(client, {})
        self.requests += 1
        for window, _ in self._parts(taken_ms - one.queue_ms, taken_ms):
            cell = _cell(cells, window)
            cell.waits += 1
            cell.waited_ms += one.waited_ms
        for window, part_ms in self._parts(taken_ms, one.handled_ms):
            _cell(cells, window).used_ms += part_ms
        cell = _cell(cells, min(self._window(one.handled_ms), self.count - 1))
        cell.requests += 1
        cell.throttled += one.is_throttled
        histograms = self.before if one.handled_ms < self._since_ms else self.during
        histograms.setdefault(client, Histogram()).add(one.waited_ms)

    @property
    def begins_ms(self) -> int:
        """Beginning of the first window with a request, epoch ms; the end without any."""
        first = min((min(cells) for cells in self.cells.values()), default=self.count)
        return self.from_ms + self.width_ms * first

    def _client(self, one: Served) -> Client:
        named: Client = (one.user, one.client_id)
        if named in self.cells or len(self.cells) < MOST_CLIENTS:
            return named
        of_user: Client = (one.user, None)
        return of_user if of_user in self.cells or len(self.cells) < 2 * MOST_CLIENTS else (None, None)

    def _window(self, time_ms: float) -> int:
        return int(time_ms - self.from_ms) // self.width_ms

    def _parts(self, begin_ms: float, end_ms: float) -> Iterator[tuple[int, float]]:
        """The windows between two times, each with its part of the time, ms."""
        first, last = max(self._window(begin_ms), 0), min(self._window(end_ms), self.count - 1)
        for window in range(first, last + 1):
            start_ms = self.from_ms + window * self.width_ms
            yield window, min(end_ms, start_ms + self.width_ms) - max(begin_ms, start_ms)


def width_of(length_ms: int) -> int:
    """The width of the windows of a period, ms."""
    return max(1, -(-length_ms // (MOST_WINDOWS * LEAST_WIDTH_MS))) * LEAST_WIDTH_MS


def _cell(cells: dict[int, Cell], window: int) -> Cell:
    found = cells.get(window)
    if found is None:
        found = cells[window] = Cell()
    return found
