"""What episodes need of the decisions of a micro-batch."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from kquota_spark.audit.violations.episodes import LOG, pieces_of

Place = tuple[str, int, str]
"""Cluster, broker and source, each of which has a time of its own."""
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
    """What episodes need of the decisions of a micro-batch."""

    pieces: pa.Table
    """The violated seconds, see `pieces_of`."""
    seconds: list[Seconds]
    """From where to where they reach; a place has an element per task."""

    @property
    def newest_ms(self) -> dict[Place, int]:
        """How far the time of each place has come."""
        found: dict[Place, int] = {}
        for each in self.seconds:
            place = (each.cluster_id, each.broker_id, each.source)
            found[place] = max(each.newest_ms, found.get(place, each.newest_ms))
        return found


def decided_seconds(decisions: pa.Table) -> list[Seconds]:
    """Those of rows of `decisions`."""
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
    """What episodes need of rows of `decisions`."""
    return Judged(pieces_of(decisions, gap_ms), decided_seconds(decisions))
