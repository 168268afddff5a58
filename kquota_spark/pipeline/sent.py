"""How the points of a client's second travel to the judge of their bucket, with what governs them: MessagePack."""

from __future__ import annotations

import json

import msgspec

from kquota_spark.model.govern.govern import Governed
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.model.replay.decision import Stretch
from kquota_spark.model.replay.replay import Governing
from kquota_spark.pipeline.known import Gap
from kquota_spark.pipeline.packed_points import points_of

MANAGER_KEYS = ("cluster_id", "broker_id", "quota_type")
BUCKET_KEYS = ("bucket_user", "bucket_client_id", "bucket_tags")


class Manager(msgspec.Struct, array_like=True, frozen=True):
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


def bucket_text(bucket: Bucket, *, has_tags: bool) -> str:
    """A bucket as text: a JSON array; the tags of a callback are an object of their own, as the tables have them."""
    names: tuple[str, ...] = (bucket.user, bucket.client_id)
    if has_tags:
        names += (json.dumps(dict(bucket.custom_tags), ensure_ascii=False),)
    return msgspec.json.encode(names).decode()


def sent_of(governed: Governed, second_ms: int, client: tuple[str, str], points: bytes) -> Sent:
    """What is sent of points of a (user, client id); `known_through_ms`, gaps and windows are still to be set."""
    governing = governed.relied_on
    return Sent(
        second_ms, *client, governing.valid_from_ms, governing.valid_to_ms, governing.has_request_quota, points,
        governed.rule, governed.rule_version, governed.level, governing.limit_per_s,
    )  # fmt: skip
