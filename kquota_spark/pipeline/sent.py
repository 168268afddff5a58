"""How the points of a client's second travel to the judge of their bucket, with what governs them: MessagePack."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.causes import Governing
from kquota_spark.model.replay.decision import Stretch
from kquota_spark.pipeline.known import Gap
from kquota_spark.pipeline.packed_points import points_of

MANAGER_KEYS = ("cluster_id", "broker_id", "quota_type")
BUCKET_KEYS = ("bucket_user", "bucket_client_id", "bucket_tags")


class Manager(NamedTuple):
    """What a broker has one of for each type of quota (Kafka's `ClientQuotaManager`)."""

    cluster_id: str
    broker_id: int
    quota_type: QuotaType


class Sent(msgspec.Struct, gc=False, array_like=True):
    """The points of one client in one second under one rule."""

    second_ms: int
    user: str
    client_id: str
    valid_from_ms: int
    valid_to_ms: int | None
    has_request_quota: bool
    points: bytes
    """See `pipeline.packed_points`."""
    rule: str | None = None
    rule_version: int | None = None
    level: int | None = None
    limit_per_s: float | None = None
    known_through_ms: int | None = None
    gaps: tuple[Gap, ...] = ()
    """Of the broker's log, with what a ring remembers after each."""
    rate_config: str | None = None
    """Name of the broker's `RateConfig`."""


encoded = msgspec.msgpack.Encoder().encode
received = msgspec.msgpack.Decoder(Sent).decode
"""What was sent, from its bytes."""


def stretch_of(sent: Sent) -> Stretch:
    """What `judge_bucket` takes."""
    governing = Governing(
        sent.limit_per_s, sent.valid_from_ms, sent.valid_to_ms, sent.has_request_quota, sent.gaps
    )
    return Stretch(
        sent.second_ms, sent.user, sent.client_id, governing, sent.level, sent.rule, sent.rule_version,
        points_of(sent.points),
    )  # fmt: skip


def manager_of(text: str) -> Manager:
    """A manager, from the text of its column."""
    return msgspec.json.decode(text, type=Manager)


def manager_text(cluster_id: str, broker_id: int, quota_type: str) -> str:
    """A manager as text, a key of Spark's state."""
    return msgspec.json.encode((cluster_id, broker_id, quota_type)).decode()


BucketTags = tuple[str, str, str | None]
"""User, client id, and the tags of a callback as text: what tells the buckets of a manager apart."""


def bucket_tags(bucket: Bucket, *, has_tags: bool) -> BucketTags:
    """A bucket as the tables have it; the tags of a callback are a JSON object."""
    tags = json.dumps(dict(bucket.custom_tags), ensure_ascii=False) if has_tags else None
    return bucket.user, bucket.client_id, tags


def bucket_text(tags: BucketTags) -> str:
    """A bucket as text: a JSON array."""
    return msgspec.json.encode(tags if tags[2] is not None else tags[:2]).decode()


def bucket_of(text: str) -> BucketTags:
    """A bucket, from its text."""
    user, client_id, *tags = msgspec.json.decode(text, type=list[str])
    return user, client_id, tags[0] if tags else None
