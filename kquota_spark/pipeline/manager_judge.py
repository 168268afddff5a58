"""One quota manager on a worker: the buckets of one broker and quota type, with their stored state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.pipeline.bucket_judge import BucketJudge, Configs, Judged
from kquota_spark.pipeline.sent import Sent
from kquota_spark.schema.columns import STATE_FORM


class _Kept(NamedTuple):
    """A bucket between two micro-batches; what is not used is not looked into."""

    forget_at_ms: int
    state: bytes


class JudgedBucket(NamedTuple):
    """Seconds of one bucket, and through when the rules were known that they were judged by."""

    bucket: str
    judged: list[Judged]
    known_through_ms: int | None


class ManagerJudge:
    """Judges the rows of all buckets of one manager.

    Args:
        quota_type: what they limit.
        configs: see `Configs`.
        state: `state` of such a judge, to go on from.

    Raises:
        ValueError: the state was written by another release in a form that this one does not know.
    """

    def __init__(self, quota_type: QuotaType, configs: Configs, state: bytes | None = None) -> None:
        self._quota_type, self._configs = quota_type, configs
        self._kept: dict[str, _Kept] = {} if state is None else _restored(state)

    def judge(self, rows: Iterable[tuple[str, Sent]]) -> list[JudgedBucket]:
        """Judge whole seconds, each row with its bucket; no later call comes with older ones.

        Buckets are forgotten that are as good as new when nothing before these seconds can come any more.
        """
        by_bucket: dict[str, list[Sent]] = {}
        for bucket, sent in rows:
            by_bucket.setdefault(bucket, []).append(sent)
        oldest_ms = min((sent.second_ms for of_bucket in by_bucket.values() for sent in of_bucket), default=0)
        self._kept = {bucket: kept for bucket, kept in self._kept.items() if kept.forget_at_ms > oldest_ms}
        return [self._judged(bucket, of_bucket) for bucket, of_bucket in by_bucket.items()]

    def _judged(self, bucket: str, rows: list[Sent]) -> JudgedBucket:
        kept = self._kept.get(bucket)
        judge = BucketJudge(self._quota_type, self._configs, None if kept is None else kept.state)
        judged = judge.judge(rows)
        self._kept[bucket] = _Kept(judge.forget_at_ms, judge.state)
        return JudgedBucket(bucket, judged, known_through_of(rows))

    @property
    def buckets(self) -> list[str]:
        """Those that are remembered."""
        return list(self._kept)

    @property
    def state(self) -> bytes:
        """The state as MessagePack; the first number is the version of this form."""
        return msgspec.msgpack.encode([STATE_FORM, self._kept])


def known_through_of(rows: Iterable[Sent]) -> int | None:
    """Through when the rules of all these rows were known; None if of one of them nobody said."""
    known_ms = [sent.known_through_ms for sent in rows]
    return None if None in known_ms else min(time_ms for time_ms in known_ms if time_ms is not None)


def _restored(state: bytes) -> dict[str, _Kept]:
    form, *parts = msgspec.msgpack.decode(state)
    if form != STATE_FORM:
        msg = (
            f"state of the buckets has form {form}, expected {STATE_FORM}: move the checkpoint log away and start "
            "with --new-lineage"
        )
        raise ValueError(msg)
    return {bucket: _Kept(*kept) for bucket, kept in parts[0].items()}
