"""What each rule governed in a period of `decisions`, and which rules limit nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.findings.idle_rules import dead, shadowed
from kquota_spark.model.compare.observed_clients import Observed, Rule
from kquota_spark.model.compare.quota_tree import Hits, Idle, Node, RuleKey, quota_tree
from kquota_spark.model.govern.govern import STATIC_DEFAULT_RULES
from kquota_spark.model.quotas.entities import Entity, parse_entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import CONNECTION, AnyKey, IpQuotaKey, QuotaKey, QuotaType
from kquota_spark.quotas.stored import held_cluster, stored_image
from kquota_spark.reports.clients.seen_clients import clients_seen, observed
from kquota_spark.schema.harm import (
    DELAY_MS,
    IS_THROTTLED,
    LONGEST_THROTTLE_MS,
    time_throttled,
)
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.store.reading import Tables

_DEFAULT_MS = 2 * 86_400_000
"""Default period of hits (ms): rules are called dead after a day of usage, and traffic may start after the period."""
# One pass over the few named columns; the rest of the files is not read.
_HITS = f"""
select rule, quota_type, sum(requests + coalesce(late, 0))::bigint as requests, sum(amount)::bigint as amount,
       count(*) as bucket_seconds, sum({DELAY_MS})::bigint as delay_ms
from decisions where cluster_id = ? and decisions.second >= make_timestamptz(?) group by all
"""  # noqa: S608 - names of ours


_OF_RULES = f"""(
  select rule, quota_type, epoch_ms(second) as second_ms, {FROM_LOG} as is_log, {LONGEST_THROTTLE_MS} as longest_ms,
         {IS_THROTTLED} as is_throttled
  from decisions where cluster_id = ? and second >= make_timestamptz(?)
)"""  # noqa: S608 - names of ours
_TIMES = f"""
with {time_throttled("rule, quota_type", _OF_RULES)}
select rule, quota_type, time_throttled_s from of_time
"""  # noqa: S608 - names of ours


class TreeFound(NamedTuple):
    """The quota tree, and the period of its hits, epoch ms; the period is None if no hits are known.

    `others` are the hits of no rule in the tree: without a limit (None), under a static default or under a callback.
    """

    origin: str
    tree: list[Node]
    from_ms: int | None
    to_ms: int | None
    others: Mapping[tuple[str | None, str], Hits]
    throttled_s: Mapping[tuple[str | None, str], int]
    """Clock time during which a bucket of a rule was throttled, s, by rule and quota type; 0 if it is not there."""


def tree_of_tables(settings: Settings, since_ms: int | None, now_ms: int) -> TreeFound:
    """The present quotas of the table `quota_rules`, with their hits since a time (epoch ms).

    Without `since_ms`, the hits of the last two days of `decisions` are counted.

    Raises:
        UserError: there are no quotas in the tables.
    """
    with Tables(settings) as tables:
        stored = stored_image(tables, settings, now_ms)
        return _with_hits(tables, stored.cluster_id, stored.origin, stored.quotas, since_ms, is_stored=True)


def tree_of(settings: Settings, origin: str, quotas: QuotaSet, since_ms: int | None) -> TreeFound:
    """Quotas from another source, with the hits of rules of the same name in the tables; no hits without tables.

    Args:
        settings: where the tables are.
        origin: source of the quotas, as it is printed.
        quotas: the quotas of a cluster or a file.
        since_ms: start of the hits, epoch ms; None for the last two days of `decisions`.
    """
    with Tables(settings) as tables:
        cluster_id = held_cluster(tables, settings)
        return _with_hits(tables, cluster_id, origin, quotas, since_ms, is_stored=False)


def _with_hits(
    tables: Tables, cluster_id: str, origin: str, quotas: QuotaSet, since_ms: int | None, *, is_stored: bool
) -> TreeFound:
    to_ms = None
    if tables.location("decisions") is not None:
        if since_ms is None:
            tables.follow("decisions", _DEFAULT_MS)
        else:
            tables.open("decisions", since_ms)
        to_ms = tables.newest_ms("decisions")
    if to_ms is None:
        return TreeFound(origin, quota_tree(quotas, None, Idle()), None, None, {}, {})
    from_ms = to_ms - _DEFAULT_MS if since_ms is None else since_ms
    hits: dict[RuleKey, Hits] = {}
    others: dict[tuple[str | None, str], Hits] = {}
    for rule, quota_type, *numbers in tables.query(_HITS, [cluster_id, from_ms * 1_000]).rows:
        governs = _rule_key(rule, quota_type)
        if governs is None:
            others[rule, quota_type] = Hits(*numbers)
        else:
            hits[governs] = Hits(*numbers)
    idle = _idle(tables, cluster_id, quotas, from_ms, is_stored=is_stored)
    to_ms += 1_000
    times = tables.query(_TIMES, [cluster_id, from_ms * 1_000, to_ms]).rows
    throttled_s = {(rule, quota_type): seconds for rule, quota_type, seconds in times}
    return TreeFound(origin, quota_tree(quotas, hits, idle), from_ms, to_ms, others, throttled_s)


def _rule_key(rule: str | None, quota_type: str) -> RuleKey | None:
    """The rule and key of a decision; None where no entity set the limit."""
    if rule is None or rule in STATIC_DEFAULT_RULES.values():
        return None
    try:
        key: AnyKey = (
            IpQuotaKey.CONNECTION_CREATION_RATE if quota_type == CONNECTION else QuotaType(quota_type).key
        )
        return parse_entity(rule), key
    except ValueError:
        return None  # a callback's answer


def _idle(tables: Tables, cluster: str, quotas: QuotaSet, from_ms: int, *, is_stored: bool) -> Idle:
    """Rules that limit nobody, according to the clients in `usage`."""
    tables.open_if_there("usage", from_ms)
    clients = clients_seen(tables, cluster, from_ms)
    if not clients:
        return Idle()
    for name in ("quota_rules", "quota_changes"):
        tables.open_if_there(name)
    beside = observed(tables, cluster, clients)
    if not is_stored:
        beside = Observed(beside.seen, _rules_of(quotas), beside.from_ms, beside.to_ms, {}, beside.is_sampled)
    return Idle(
        dead={(rule.entity, key) for rule, keys in dead(beside) for key in keys},
        shadowed={(shadow.rule.entity, shadow.key): shadow.by for shadow in shadowed(beside)},
    )


def _rules_of(quotas: QuotaSet) -> list[Rule]:
    """The rules of another source. It does not contain their start times, so they hold for all time."""
    return [
        Rule(entity, {key: value for key, value in values.items() if isinstance(key, QuotaKey)})
        for entity, values in quotas.items()
        if isinstance(entity, Entity)
    ]
