"""The whole state of a notifier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kquota_spark.notify.news.fold import Addressed, Known
from kquota_spark.notify.news.lanes import Lane

FORM = 1
"""Version of the file; a file with another version is not read."""


@dataclass(slots=True)
class State:
    """The known conditions, and the undelivered events."""

    form: int = FORM
    known: Known = field(default_factory=Known)
    lanes: dict[str, Lane] = field(default_factory=dict)
    """Lanes by route."""

    def keep_routes(self, names: Iterable[str]) -> list[str]:
        """Keep one lane for each route of the settings; the names of dropped lanes that still had events."""
        wanted = list(names)
        dropped = [
            name for name, lane in self.lanes.items() if name not in wanted and (lane.waiting or lane.message)
        ]
        self.lanes = {name: self.lanes.get(name) or Lane() for name in wanted}
        for active in self.known.active.values():
            active.routes = [name for name in active.routes if name in wanted]
        return dropped

    def add(self, news: Iterable[Addressed], now_ms: int) -> None:
        """Add events to the lanes of their routes."""
        for event, names in news:
            for name in names:
                self.lanes[name].add([event], now_ms)
