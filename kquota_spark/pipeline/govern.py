"""GOVERN: which limit each stretch of a second is under. An as-of broadcast join with `quota_rules`.

A `usage` row is looked up at each of Kafka's eight levels. The stretches of an entity cover all time, so a
row that spans an edit comes out once per stretch, with the points that fall into it; the validity stands in
the join condition, because a filter after a left join would lose rows whose only match had expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.entities import LEVELS
from kquota_spark.model.govern import STATIC_DEFAULT_RULES
from kquota_spark.model.quota_types import QuotaKey, QuotaType
from kquota_spark.model.resolve import CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL, USER_ONLY_LEVELS
from kquota_spark.schema.tables import FOREVER_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_VALUES = tuple(key.value for key in QuotaKey)
# Almost every second lies within one stretch: only the others are filtered.
_POINTS_INSIDE = """
    CASE WHEN valid_from_ms <= second_ms AND second_ms + 1000 <= valid_to_ms THEN points
    ELSE filter(points, p -> p.record_time_ms >= valid_from_ms AND p.record_time_ms < valid_to_ms) END"""
_ALL_LEVELS = tuple(range(1, len(LEVELS) + 1))


def with_governing(
    usage: DataFrame, rules: DataFrame, static_defaults: Mapping[QuotaType, float] = MappingProxyType({})
) -> DataFrame:
    """Add limit, level, rule, its validity and the bucket; split rows at edits.

    Args:
        usage: rows of `usage`.
        rules: `quota_rules` of this cluster, its level-0 row included.
        static_defaults: level 9, the brokers' own defaults up to 2.8.

    Returns:
        `usage` with limit_per_s, level, rule, rule_version, valid_from_ms, valid_to_ms, has_request_quota,
        bucket_user, bucket_client_id, bucket_tags (null) and known_through_ms; `points` cut to the stretch.
    """
    known = rules.where("level = 0").select(F.unix_millis("known_through").alias("known_through_ms"))
    timeline = F.broadcast(_timeline(rules))
    second_ms = F.unix_millis("second")
    governed = reduce(
        lambda rows, level: _joined(rows, timeline, level),
        _ALL_LEVELS,
        usage.withColumns({"second_ms": second_ms}).crossJoin(F.broadcast(known)),
    )
    return governed.transform(_only_whole_stretches).transform(_with_winner, static_defaults)


def with_bucket_limit(
    samples: DataFrame, rules: DataFrame, static_defaults: Mapping[QuotaType, float] = MappingProxyType({})
) -> DataFrame:
    """Add the limit of a bucket as of the sample's time: the second stage alone, because its tags are known.

    Args:
        samples: rows with cluster_id, quota_type, bucket_user, bucket_client_id and sample_time_ms.
        rules: `quota_rules` of this cluster, its level-0 row included.
        static_defaults: level 9, the brokers' own defaults up to 2.8.

    Returns:
        `samples` with limit_per_s, level, rule, rule_version and known_through_ms.
    """
    known = rules.where("level = 0").select(F.unix_millis("known_through").alias("known_through_ms"))
    timeline = F.broadcast(_timeline(rules))
    looked_up = {"user": F.col("bucket_user"), "client_id": F.col("bucket_client_id")}
    governed = reduce(
        lambda rows, level: _joined(rows, timeline, level, at="sample_time_ms", length_ms=1),
        _ALL_LEVELS,
        samples.withColumns(looked_up).crossJoin(F.broadcast(known)),
    )
    tags = _Tags(F.col("bucket_user"), F.col("bucket_client_id"))
    won = governed.select("*", _limit(static_defaults, tags).alias("winner"))
    scaffold = ("user", "client_id", "winner", *(f"rule_{level}" for level in _ALL_LEVELS))
    return won.select("*", "winner.*").drop(*scaffold)


def _timeline(rules: DataFrame) -> DataFrame:
    """Rules as the right side of every lookup."""
    nobody = F.lit("")
    return rules.where("level > 0").select(
        F.col("cluster_id").alias("r_cluster_id"),
        _key(F.col("level"), F.coalesce("user", nobody), F.coalesce("client_id", nobody)).alias("r_key"),
        F.unix_millis("valid_from").alias("r_from_ms"),
        F.coalesce(F.unix_millis("valid_to"), F.lit(FOREVER_MS)).alias("r_to_ms"),
        F.struct("entity", "version", *_VALUES, F.unix_millis("valid_from").alias("from_ms"),
                 F.unix_millis("certain_from").alias("certain_ms"),
                 F.coalesce(F.unix_millis("valid_to"), F.lit(FOREVER_MS)).alias("to_ms")).alias("r_rule"),
    )  # fmt: skip


def _key(level: Column, user: Column, client_id: Column) -> Column:
    """Level and names as one text; the length keeps two pairs of names apart that run together alike."""
    return F.concat(
        level.cast("string"), F.lit(":"), F.length(user).cast("string"), F.lit(":"), user, client_id
    )


def _joined(
    rows: DataFrame, timeline: DataFrame, level: int, *, at: str = "second_ms", length_ms: int = 1_000
) -> DataFrame:
    """Left join of one level with what held in `length_ms` from `at` on; the rule goes into `rule_<level>`.

    No condition is about the right side alone: it would be pushed down, each level would have a right side of
    its own, and a micro-batch would scan and broadcast the rules eight times instead of once.
    """
    user, client_id = (kind.value for kind in LEVELS[level - 1])
    # Nobody's name, and not a constant, for the same reason.
    nobody = F.repeat("user", F.lit(0))
    named = _key(
        F.lit(level),
        F.col("user") if user == "named" else nobody,
        F.col("client_id") if client_id == "named" else nobody,
    )
    condition = (
        (F.col("r_cluster_id") == F.col("cluster_id"))
        & (F.col("r_key") == named)
        & (F.col("r_from_ms") < F.col(at) + length_ms)
        & (F.col("r_to_ms") > F.col(at))
    )
    joined = rows.join(timeline, condition, how="left")
    right = ("r_cluster_id", "r_key", "r_from_ms", "r_to_ms")
    return joined.drop(*right).withColumnRenamed("r_rule", f"rule_{level}")


def _only_whole_stretches(rows: DataFrame) -> DataFrame:
    """Intersect the stretches of all levels; keep the points inside, drop combinations that hold none."""
    starts = [F.col(f"rule_{level}.from_ms") for level in _ALL_LEVELS]
    ends = [F.col(f"rule_{level}.to_ms") for level in _ALL_LEVELS]
    certain = [F.col(f"rule_{level}.certain_ms") for level in _ALL_LEVELS]
    return (
        rows.withColumns(
            {
                "valid_from_ms": F.coalesce(F.greatest(*starts), F.lit(0)),
                "valid_to_ms": F.coalesce(F.least(*ends), F.lit(FOREVER_MS)),
            }
        )
        .withColumn("points", F.expr(_POINTS_INSIDE))
        .where(F.size("points") > 0)
        # The points are cut. From here on the validity says what a verdict can be sure of, and a source that is
        # polled knows an edit only to lie between two polls.
        .withColumn("valid_from_ms", F.greatest("valid_from_ms", *certain))
    )


def _with_winner(rows: DataFrame, static_defaults: Mapping[QuotaType, float]) -> DataFrame:
    """Kafka's two stages (see model.resolve), per quota key: tags from the walk, the limit from the tags.

    Each stage makes columns that the next one reads: as nested expressions the walk would stand in the plan once
    for each level and tag.
    """
    walked = rows.select(
        "*", _walked(_own_quota).alias("walked"), _walked(_request_percentage).alias("walked_request")
    )
    tags, request_tags = _tags(F.col("walked")), _tags(F.col("walked_request"))
    tagged = walked.select(
        "*",
        tags.user.alias("bucket_user"),
        tags.client_id.alias("bucket_client_id"),
        request_tags.user.alias("request_user"),
        request_tags.client_id.alias("request_client_id"),
    )
    tags = _Tags(F.col("bucket_user"), F.col("bucket_client_id"))
    request_tags = _Tags(F.col("request_user"), F.col("request_client_id"))
    request_quotas = [
        F.when(_reaches(level, request_tags), _request_percentage(level)) for level in _ALL_LEVELS
    ]
    won = tagged.select(
        "*",
        _limit(static_defaults, tags).alias("winner"),
        _has_other_quota(request_quotas, bool(static_defaults)).alias("has_request_quota"),
        F.lit(None).cast("string").alias("bucket_tags"),
    )
    scaffold = ("walked", "walked_request", "request_user", "request_client_id", "winner")
    return won.select("*", "winner.*").drop(*scaffold, *(f"rule_{level}" for level in _ALL_LEVELS))


def _walked(value_of: Callable[[int], Column]) -> Column:
    """The first level that carries the key; null if none does."""
    return F.coalesce(*(F.when(value_of(level).isNotNull(), F.lit(level)) for level in _ALL_LEVELS))


class _Tags(NamedTuple):
    user: Column
    client_id: Column


def _tags(level: Column) -> _Tags:
    """The bucket: the level that the walk found says which tags are kept."""
    is_client_bucket = level.isNull() | level.isin(*CLIENT_ONLY_LEVELS)
    return _Tags(
        F.when(is_client_bucket, "").otherwise(F.col("user")),
        F.when(level.isin(*USER_ONLY_LEVELS), "").otherwise(F.col("client_id")),
    )


def _limit(static_defaults: Mapping[QuotaType, float], tags: _Tags) -> Column:
    """Level, limit, rule and version of the first level at which these tags have a limit."""
    return F.coalesce(
        *(
            _winner(
                level, _own_quota(level), F.col(f"rule_{level}.entity"), F.col(f"rule_{level}.version"), tags
            )
            for level in _ALL_LEVELS
        ),
        *(_static_winner(quota_type, limit, tags) for quota_type, limit in static_defaults.items()),
    )


def _own_quota(level: int) -> Column:
    """The quota of the row's own type at a level."""
    cases = " ".join(f"WHEN '{each.value}' THEN rule_{level}.{each.key.value}" for each in QuotaType)
    return F.expr(f"CASE quota_type {cases} END")


def _has_other_quota(request_quotas: Sequence[Column], has_static_default: bool) -> Column:
    """Whether the throttle in the log may be another quota's: see `model.replay.Governing`."""
    others = [value for value in _VALUES if value != QuotaKey.REQUEST_PERCENTAGE.value]
    of_levels = [F.col(f"rule_{level}.{value}") for level in _ALL_LEVELS for value in others]
    is_shared = F.lit(has_static_default) | F.coalesce(*of_levels).isNotNull()
    is_request = F.col("quota_type") == QuotaType.REQUEST.value
    return F.when(is_request, is_shared).otherwise(F.coalesce(*request_quotas).isNotNull())


def _request_percentage(level: int) -> Column:
    return F.col(f"rule_{level}.{QuotaKey.REQUEST_PERCENTAGE.value}")


def _reaches(level: int, tags: _Tags) -> Column:
    """Whether the limit of these tags is looked up at a level."""
    has_user = level not in (*CLIENT_ONLY_LEVELS, STATIC_DEFAULT_LEVEL)
    has_client_id = level not in USER_ONLY_LEVELS
    return ((tags.user != "") == F.lit(has_user)) & ((tags.client_id != "") == F.lit(has_client_id))


def _winner(level: int, limit: Column, rule: Column, version: Column, tags: _Tags) -> Column:
    found = F.struct(
        F.lit(level).alias("level"),
        limit.alias("limit_per_s"),
        rule.alias("rule"),
        version.alias("rule_version"),
    )
    return F.when(limit.isNotNull() & _reaches(level, tags), found)


def _static_winner(quota_type: QuotaType, limit: float, tags: _Tags) -> Column:
    of_type = F.when(F.col("quota_type") == quota_type.value, F.lit(limit))
    rule = F.lit(STATIC_DEFAULT_RULES[quota_type])
    return _winner(STATIC_DEFAULT_LEVEL, of_type, rule, F.lit(None).cast("bigint"), tags)
