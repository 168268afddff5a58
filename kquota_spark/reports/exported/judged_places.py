"""How far each broker is judged, how well verdicts agree, and the unmetered traffic: sums over all buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.reports.exported.bucket_refresh import OF_PLACE, Refresh, SeenPlace
from kquota_spark.reports.exported.metrics import Sample
from kquota_spark.reports.exported.shown_buckets import IDLE_MS

_SILENT_MS = 3_600_000
"""Time (ms) behind the newest decision after which a broker is no longer reported: it may be removed for good."""


@dataclass(slots=True)
class _Place:
    newest_ms: int = 0
    is_log: bool = False
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OF_PLACE, 0))
    recent: list[tuple[int, SeenPlace]] = field(default_factory=list)
    """When each one was read (epoch ms), and what was read."""


class JudgedPlaces:
    """The sums of all places; a place is one quota type on one broker."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], _Place] = {}

    @property
    def logged(self) -> list[tuple[int, str]]:
        """Places with a request log."""
        return [key for key, place in self._places.items() if place.is_log]

    @property
    def newest_ms(self) -> dict[int, int]:
        """The newest decision of each broker (epoch ms)."""
        newest: dict[int, int] = {}
        for (broker_id, _), place in self._places.items():
            newest[broker_id] = max(place.newest_ms, newest.get(broker_id, 0))
        return newest

    def fold(self, refresh: Refresh, now_ms: int, *, is_counted: bool) -> None:
        """Take over the decisions of a refresh at that time; they are added to the sums only if `is_counted`."""
        for key, seen in refresh.places.items():
            place = self._places.setdefault(key, _Place())
            place.newest_ms = max(place.newest_ms, seen.newest_ms)
            place.is_log |= seen.is_log
            place.recent.append((now_ms, seen))
            for name in OF_PLACE if is_counted else ():
                place.sums[name] += getattr(seen, name)
        newest_ms = max((place.newest_ms for place in self._places.values()), default=0)
        for key, place in list(self._places.items()):
            place.recent = [(at_ms, seen) for at_ms, seen in place.recent if now_ms - at_ms <= IDLE_MS]
            if place.newest_ms < newest_ms - _SILENT_MS:
                del self._places[key]

    def samples(self, cluster_id: str) -> Iterator[Sample]:
        """Samples of all places, and of the brokers."""
        for (broker_id, quota_type), place in self._places.items():
            labels = {"cluster_id": cluster_id, "broker_id": str(broker_id), "quota_type": quota_type}
            if quota_type in BANDWIDTH:
                yield "unmetered_bytes_total", labels, float(place.sums["unmetered_amount"])
            if place.is_log:
                for name in OF_PLACE[1:]:
                    yield f"{name}_total", labels, float(place.sums[name])
            recent = [seen for _, seen in place.recent]
            for name, part, whole in (
                ("certain_ratio", "certain_decisions", "decisions"),
                ("agreement_ratio", "requests_agreeing", "requests_judged"),
            ):
                if total := sum(getattr(seen, whole) for seen in recent):
                    yield name, labels, sum(getattr(seen, part) for seen in recent) / total
        for broker_id, newest_ms in self.newest_ms.items():
            labels = {"cluster_id": cluster_id, "broker_id": str(broker_id)}
            yield "newest_decision_timestamp_seconds", labels, newest_ms / 1_000
