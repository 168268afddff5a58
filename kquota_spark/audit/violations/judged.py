"""The part of the decisions of a micro-batch that episodes need."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from kquota_spark.audit.violations.episodes import LOG, pieces_of

Place = tuple[str, int, str]
"""Cluster, broker and source; each such place has a time of its own."""
_IN_MS = pa.timestamp("ms", tz="UTC")


class Seconds(NamedTuple):
    """The first and the newest second of decisions, epoch ms."""

    cluster_id: str
    broker_id: int
    quota_type: str
    source: str
    first_ms: int
    newest_ms: int


class Judged(NamedTuple):
    """The part of the decisions of a micro-batch that episodes need."""

    pieces: pa.Table
    """The violated seconds, see `pieces_of`."""
    seconds: list[Seconds]
    """The first and the newest second of the decisions; a place has one element per task."""

    @property
    def newest_ms(self) -> dict[Place, int]:
        """The newest second of each place, epoch ms."""
        found: dict[Place, int] = {}
        for each in self.seconds:
            place = (each.cluster_id, each.broker_id, each.source)
            found[place] = max(each.newest_ms, found.get(place, each.newest_ms))
        return found


def decided_seconds(decisions: pa.Table) -> list[Seconds]:
    """The first and the newest seconds in rows of `decisions`, by cluster, broker, quota type and source."""
    keys = ["cluster_id", "broker_id", "quota_type", "source"]
    found = (
        decisions.select([*keys, "second"]).group_by(keys).aggregate([("second", "min"), ("second", "max")])
    )
    for which in ("min", "max"):
        found = found.append_column(f"{which}_ms", found[f"second_{which}"].cast(_IN_MS).cast(pa.int64()))
    columns = (found[name].to_pylist() for name in (*keys, "min_ms", "max_ms"))
    return [
        Seconds(cluster_id, broker_id, quota_type, source or LOG, first_ms, newest_ms)
        for cluster_id, broker_id, quota_type, source, first_ms, newest_ms in zip(*columns, strict=True)
    ]


def judged_rows(decisions: pa.Table, gap_ms: int) -> Judged:
    """The part of rows of `decisions` that episodes need."""
    return Judged(pieces_of(decisions, gap_ms), decided_seconds(decisions))
