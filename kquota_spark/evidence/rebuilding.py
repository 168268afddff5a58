"""Rebuilds one decision of a bucket and second from its inputs, with the code of the job.

How far back is enough: a ring remembers nothing after a pause of (N + 1) windows. So the requests after the last such
pause are all that the second depends on (`pipeline.bucket_judge.warm_start`). A shorter pause is not enough, because
samples open on events: when they open depends on all requests since the pause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.pipeline.bucket_judge import (
    DECIDED_NAMES,
    BucketJudge,
    Configs,
    decided_values,
    is_behind,
    known_through_of,
)
from kquota_spark.pipeline.govern import governed_pieces
from kquota_spark.pipeline.known import Known
from kquota_spark.pipeline.sent import BUCKET_KEYS, MANAGER_KEYS, BucketTags, Manager, Sent
from kquota_spark.schema.tables import DECISIONS

KEY_NAMES = (*MANAGER_KEYS, *BUCKET_KEYS, "second_ms")
"""Columns that identify a decision."""
NAMES = (*MANAGER_KEYS, *BUCKET_KEYS, *DECIDED_NAMES)
"""All columns of a decision; `second_ms` is in place of `second` and `event_date`."""
_TYPES = {field.name: field.type for field in DECISIONS.arrow_schema()} | {"second_ms": pa.int64()}


class Inputs(NamedTuple):
    """Everything that a decision depends on.

    Attributes:
        manager: cluster, broker and quota type.
        bucket: user tag, client-id tag, and the tags of a callback.
        second_ms: start of the second, epoch ms.
        rows: the bucket's requests with what governs them, from the start of the replay through the second.
        configs: the windows of quotas, for rows that name none.
        state: state of a `BucketJudge` before the first row; None for a ring without samples.
    """

    manager: Manager
    bucket: BucketTags
    second_ms: int
    rows: Sequence[Sent]
    configs: Configs
    state: bytes | None = None


class Rebuilt(NamedTuple):
    """A rebuilt decision.

    Attributes:
        row: the columns `NAMES`.
        verdicts: the verdict on each request of the second, in order.
        config: the broker's windows in the second.
        before: what the replay remembers before the second, see the `state` of each replay; None for nothing.
    """

    row: dict[str, Any]
    verdicts: list[Verdict]
    config: RateConfig
    before: Any


def rebuild(inputs: Inputs) -> Rebuilt:
    """Rebuild a decision from its inputs.

    Raises:
        ValueError: there is no request in the second.
    """
    manager, bucket, second_ms, rows, configs, state = inputs
    judge = BucketJudge(manager.quota_type, configs, state)
    judge.judge(row for row in rows if row.second_ms < second_ms)
    of_second = [row for row in rows if row.second_ms == second_ms]
    if not of_second:
        raise ValueError("no request in this second")
    name, before = msgspec.msgpack.decode(judge.state, strict=False)
    config = configs.of(manager.quota_type, of_second[0].rate_config)
    verdicts: list[Verdict] = []
    [judged] = judge.judge(of_second, verdicts)
    known_through_ms = known_through_of(row.known_through_ms for row in of_second)
    values = decided_values(judged, is_rules_behind=is_behind(known_through_ms, second_ms))
    key = (manager.cluster_id, manager.broker_id, manager.quota_type.value, *bucket)
    # A broker that has started with other windows since then began with empty rings.
    return Rebuilt(
        dict(zip(NAMES, (*key, *values), strict=True)),
        verdicts,
        config,
        before if name == config.name else None,
    )


def governed_rows(usage: pa.RecordBatch, known: Known, manager: Manager, bucket: BucketTags) -> list[Sent]:
    """The requests of one bucket with what governs them, from rows of `usage`.

    Args:
        usage: columns cluster_id, `CLIENT_KEYS`, second and points.
        known: quotas, windows and gaps.
        manager: cluster, broker and quota type of the bucket.
        bucket: its tags; rows of other buckets are left out.
    """
    pieces, points, _ = governed_pieces(usage, known)
    return [sent for of, tags, sent in pieces.rows(points) if of == manager and tags == bucket]


def decision_bytes(row: Mapping[str, Any], names: Iterable[str] = NAMES) -> bytes:
    """A decision as bytes, for comparison: its columns in the types of the table, as JSON.

    Args:
        row: columns of a decision.
        names: the columns to take.
    """
    typed = {name: pa.array([row[name]], _TYPES[name])[0].as_py() for name in names}
    return json.dumps(typed, sort_keys=True).encode()
