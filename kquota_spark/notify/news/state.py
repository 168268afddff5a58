"""All that a notifier remembers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kquota_spark.notify.news.fold import Addressed, Known
from kquota_spark.notify.news.lanes import Lane

FORM = 1
"""Of the file; another one is not read."""


@dataclass(slots=True)
class State:
    """What was found, and what is on its way."""

    form: int = FORM
    known: Known = field(default_factory=Known)
    lanes: dict[str, Lane] = field(default_factory=dict)
    """By route."""

    def keep_routes(self, names: Iterable[str]) -> list[str]:
        """Have a lane for each route of the settings and for no other; those that are dropped with events in them."""
        wanted = list(names)
        dropped = [
            name for name, lane in self.lanes.items() if name not in wanted and (lane.waiting or lane.message)
        ]
        self.lanes = {name: self.lanes.get(name) or Lane() for name in wanted}
        for active in self.known.active.values():
            active.routes = [name for name in active.routes if name in wanted]
        return dropped

    def add(self, news: Iterable[Addressed], now_ms: int) -> None:
        """Let events wait for their routes."""
        for event, names in news:
            for name in names:
                self.lanes[name].add([event], now_ms)
