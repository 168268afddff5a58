"""Limits of connection rates: the quota of the address as of the sample's time, or the default's (KIP-612).

Source: Kafka's `ConnectionQuotas`. Addresses are compared as they are spelled: a quota for an IPv6 address in a
spelling other than the broker's own, or for a host name, is not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kquota_spark.model.entities import DEFAULT, IpEntity
from kquota_spark.model.quota_types import IP_QUOTA_KEY
from kquota_spark.schema.tables import FOREVER_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_GIVEN = ("limit_per_s", "rule", "rule_version")


def with_ip_limit(samples: DataFrame, rules: DataFrame) -> DataFrame:
    """Fill limit_per_s, rule and rule_version of samples that have an ip; the others stay as they are.

    Args:
        samples: rows with cluster_id, ip, sample_time_ms and those three.
        rules: `quota_rules` of this cluster.
    """
    own, default = (F.concat(F.lit("ips/"), "ip"), F.lit(str(IpEntity(DEFAULT))))
    found = samples.transform(_joined, rules, own, "own_ip").transform(_joined, rules, default, "default_ip")
    governing = F.coalesce("own_ip", "default_ip")
    given = {
        name: F.when(F.col("ip").isNull(), F.col(name)).otherwise(governing[name]).alias(name)
        for name in _GIVEN
    }
    kept = [name for name in samples.columns if name not in given]
    return found.select(*kept, *given.values())


def _joined(samples: DataFrame, rules: DataFrame, entity: Column, name: str) -> DataFrame:
    """Left join with what held for one address at the sample's time; a struct of `_GIVEN`, null where nothing did."""
    timeline = rules.where(f"{IP_QUOTA_KEY} IS NOT NULL").select(
        F.col("cluster_id").alias("r_cluster_id"),
        F.col("entity").alias("r_entity"),
        F.unix_millis("valid_from").alias("r_from_ms"),
        F.coalesce(F.unix_millis("valid_to"), F.lit(FOREVER_MS)).alias("r_to_ms"),
        F.struct(
            F.col(IP_QUOTA_KEY).alias("limit_per_s"),
            F.col("entity").alias("rule"),
            F.col("version").alias("rule_version"),
        ).alias(name),
    )
    condition = (
        F.col("ip").isNotNull()
        & (F.col("r_cluster_id") == F.col("cluster_id"))
        & (F.col("r_entity") == entity)
        & (F.col("r_from_ms") <= F.col("sample_time_ms"))
        & (F.col("r_to_ms") > F.col("sample_time_ms"))
    )
    joined = samples.join(F.broadcast(timeline), condition, how="left")
    return joined.drop("r_cluster_id", "r_entity", "r_from_ms", "r_to_ms")
