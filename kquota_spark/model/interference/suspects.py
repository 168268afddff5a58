"""Who slowed whom on a broker: clients that waited longer than usual, and the client that explains it.

A victim is a client with requests that wait longer for the broker's threads than is usual for it, in windows in which
no quota throttles it. A suspect is a client that uses the handlers much where all others wait long, and little where
they wait as usual. A client that only waits is no suspect.

Source of the correlation: X. Zhang et al., "CPI2: CPU performance isolation for shared compute clusters" (EuroSys
2013). There the value is the cycles per instruction of a task. Here it is the mean waiting time of the other clients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from kquota_spark.model.interference.windows import Cell, Client, Histogram, Windows

RISE = 2.0
"""A client waits longer than usual from this multiple of its usual waiting time on."""
LEAST_RISE_MS = 1.0
"""And only from this many milliseconds above its usual waiting time on. On an idle broker requests wait 0.05 ms."""
LEAST_SLOW = 3
"""Least slow windows of a victim, as in CPI2."""
LEAST_USUAL = 5
"""Least windows before the period that give a usual waiting time."""
SUSPECT_FROM = 0.35
"""Least correlation of a suspect, as in CPI2."""
LEAST_SHARE = 0.2
"""Least share of a suspect in the handler time of the slow windows."""
LEAST_BUSY = 0.25
"""Least request handlers that a suspect keeps busy in the slow windows: fewer make nobody wait."""
EXPLAINED_ABOVE = 0.5
"""A suspect has `LEAST_SHARE` of the handler time in more than this share of the slow windows."""
LEAST_GROWTH = 1.5
"""Least growth of that share from the usual windows to the slow ones."""
MOST_SUSPECTS = 5
"""Maximum number of suspects that are listed, named or not."""
_MOST_TRIED = 10
"""Maximum number of clients that are tried: those with the most work while anybody waited."""
_CALM_SHARE = 0.25
"""The quantile of a client's windows that is usual if there is no time before the period."""


class Waited(NamedTuple):
    """How long requests waited for a request handler, ms; None without requests."""

    median_ms: float | None
    p95_ms: float | None


class Victim(NamedTuple):
    """A client that waited longer than usual."""

    client: Client
    slow_windows: int
    """Windows in which it waited longer than usual."""
    windows: int
    """Windows of the period in which it sent anything and was not throttled."""
    usual_ms: float
    """Its usual mean waiting time of a window, ms."""
    slow_ms: float
    """The mean of its slow windows, ms."""
    before: Waited
    during: Waited
    requests: int
    """Its requests in the period."""


class Suspect(NamedTuple):
    """A client, and how its work goes with the waiting of the others."""

    client: Client
    correlation: float
    """From -1 to 1; named from `SUSPECT_FROM` on."""
    share: float
    """Its share of the handler time in the slow windows, from 0 to 1."""
    usual_share: float
    """The same in the windows before the period; in those that are not slow if none came before."""
    busy_threads: float
    """Request handlers that it kept busy in the slow windows, on average."""
    explained: float
    """Share of the slow windows in which it used much of the handler time, from 0 to 1."""

    @property
    def weight(self) -> float:
        """What suspects are ranked by: a client with more of the work comes first."""
        return self.correlation * self.share

    @property
    def is_named(self) -> bool:
        """Whether its work explains the waiting: it goes with it, is enough, and is more than usual."""
        is_enough = self.busy_threads >= LEAST_BUSY and self.explained > EXPLAINED_ABOVE
        is_more = self.share >= LEAST_SHARE and self.share >= LEAST_GROWTH * self.usual_share
        return self.correlation >= SUSPECT_FROM and is_enough and is_more


@dataclass(frozen=True, slots=True)
class SlowBroker:
    """One broker in one period."""

    before: Waited
    during: Waited
    """The requests of all clients, before the period and in it."""
    slow_windows: int
    """Windows in which half of the clients waited longer than usual."""
    windows: int
    """Windows of the period with requests."""
    width_ms: int
    victims: tuple[Victim, ...]
    """Most slow windows first."""
    suspects: tuple[Suspect, ...]
    """Named ones first, then by weight; empty if nobody waited longer than usual."""


def _waited(histograms: Sequence[Histogram]) -> Waited:
    whole = Histogram.sum_of(histograms)
    return Waited(whole.quantile(0.5), whole.quantile(0.95))


def slow_broker(of: Windows) -> SlowBroker:
    """The victims and the suspects of one broker.

    Args:
        of: its requests.
    """
    usual = {
        client: usual_ms
        for client, cells in of.cells.items()
        if (usual_ms := _usual_ms(of, cells)) is not None
    }
    ratios = {
        client: {
            window: cell.mean_ms / limit_ms(usual[client])
            for window, cell in of.cells[client].items()
            if _counts(cell)
        }
        for client in usual
    }
    found = sorted(_victims(of, ratios, usual), key=lambda each: (-each.slow_windows, *_order(each.client)))
    signal = _signal(ratios)
    asked = {window for window in signal if window >= of.first_asked}
    suspects = _suspects(of, ratios, found)
    return SlowBroker(
        _waited([*of.before.values()]),
        _waited([*of.during.values()]),
        sum(signal[window] > 1 for window in asked),
        len(asked),
        of.width_ms,
        tuple(found),
        tuple(suspects),
    )


def _order(client: Client) -> tuple[str, str]:
    return client[0] or "", client[1] or ""


def _counts(cell: Cell) -> bool:
    """Whether a window counts for how long a client waits: it waited in it, and no quota throttled it."""
    return cell.waits > 0 and not cell.throttled


def limit_ms(usual_ms: float) -> float:
    """The waiting time from which on a client waits longer than usual, ms."""
    return max(RISE * usual_ms, usual_ms + LEAST_RISE_MS)


def _usual_ms(of: Windows, cells: Mapping[int, Cell]) -> float | None:
    """The usual mean waiting time of a client in a window, ms; None if too little of it is known."""
    before = [cell.mean_ms for window, cell in cells.items() if window < of.first_asked and _counts(cell)]
    if len(before) >= LEAST_USUAL:
        return median(before)
    means = sorted(cell.mean_ms for cell in cells.values() if _counts(cell))
    return means[int(_CALM_SHARE * len(means))] if len(means) >= LEAST_USUAL else None


def _victims(
    of: Windows, ratios: Mapping[Client, Mapping[int, float]], usual: Mapping[Client, float]
) -> list[Victim]:
    found = []
    for client, of_client in ratios.items():
        asked = {window: ratio for window, ratio in of_client.items() if window >= of.first_asked}
        slow = [of.cells[client][window].mean_ms for window, ratio in asked.items() if ratio > 1]
        if len(slow) >= LEAST_SLOW:
            before, during = (part.get(client, Histogram()) for part in (of.before, of.during))
            found.append(
                Victim(
                    client,
                    len(slow),
                    len(asked),
                    usual[client],
                    fmean(slow),
                    _waited([before]),
                    _waited([during]),
                    during.count,
                )
            )
    return found


def _signal(ratios: Mapping[Client, Mapping[int, float]], without: Client | None = None) -> dict[int, float]:
    """By window the median of how long clients waited, in multiples of what is too long for each."""
    by_window: dict[int, list[float]] = {}
    for client, of_client in ratios.items():
        if client != without:
            for window, ratio in of_client.items():
                by_window.setdefault(window, []).append(ratio)
    return {window: median(values) for window, values in by_window.items()}


def _suspects(
    of: Windows, ratios: Mapping[Client, Mapping[int, float]], victims: Sequence[Victim]
) -> list[Suspect]:
    used: dict[int, float] = defaultdict(float)
    for cells in of.cells.values():
        for window, cell in cells.items():
            used[window] += cell.used_ms
    slow = {window for of_client in ratios.values() for window, ratio in of_client.items() if ratio > 1}
    busiest = sorted(
        of.cells,
        key=lambda client: (
            -sum(of.cells[client][window].used_ms for window in slow & of.cells[client].keys())
        ),
    )
    found = []
    for client in busiest[:_MOST_TRIED]:
        if any(victim.client != client for victim in victims):
            one = _suspect(of, client, of.cells[client], _signal(ratios, client), used)
            if one is not None:
                found.append(one)
    found.sort(key=lambda each: (not each.is_named, -each.weight, *_order(each.client)))
    return found[:MOST_SUSPECTS]


def _suspect(
    of: Windows,
    client: Client,
    cells: Mapping[int, Cell],
    signal: Mapping[int, float],
    used: Mapping[int, float],
) -> Suspect | None:
    """How a client's work goes with the waiting of the others; None if they never wait longer than usual."""
    own = {window: cell.used_ms for window, cell in cells.items() if window in signal}
    whole = sum(own.values())
    slow = {window for window, ratio in signal.items() if ratio > 1 and window >= of.first_asked}
    if len(slow) < LEAST_SLOW or not whole:
        return None
    correlation = sum(
        used_ms / whole * (1 - 1 / signal[window] if signal[window] > 1 else signal[window] - 1)
        for window, used_ms in own.items()
    )
    slow_ms = sum(own.get(window, 0.0) for window in slow)
    explained = sum(_share(own, used, [window]) >= LEAST_SHARE for window in slow)
    return Suspect(
        client,
        correlation,
        _share(own, used, slow),
        _share(own, used, [window for window in signal if window < of.first_asked] or signal.keys() - slow),
        slow_ms / (len(slow) * of.width_ms),
        explained / len(slow),
    )


def _share(own: Mapping[int, float], used: Mapping[int, float], windows: Collection[int]) -> float:
    """A client's share of the handler time in some windows; 0 if nobody used any."""
    whole = sum(used[window] for window in windows)
    return sum(own.get(window, 0.0) for window in windows) / whole if whole else 0.0
