"""The headroom of brokers for raises, where a policy states their capacity, and the sum of all raises beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.policies.context import type_of
from kquota_spark.enforce.policies.policy import DAY_MS, Raise
from kquota_spark.enforce.policies.raise_policy import headroom_of
from kquota_spark.enforcement.input import broker_uses
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import RaiseSum, Recommendation

Headroom = Mapping[tuple[int, str], float]
"""The rate that raises may add, by broker and quota type; a broker without a known capacity is missing."""


def headroom(settings: Settings, scope: Scope) -> Headroom:
    """The headroom at the end of the period, by the first policy of the kind `raise`; empty without one.

    It is `headroom_percent` of the capacity that the policy states, less the used rate: the 95th percentile of the
    broker's periods of ten seconds, in at most a day.
    """
    policy = raise_policy(Path(settings.enforcement.policy_file))
    if policy is None:
        return {}
    to_ms = scope.covered.to_ms
    from_ms = max(scope.asked.from_ms, to_ms - DAY_MS)
    uses = broker_uses(scope.tables, scope.cluster_id, from_ms, to_ms)
    return {
        (broker_id, type_of(key).value): value
        for (broker_id, key), value in headroom_of(policy, uses).items()
    }


def raise_policy(path: Path) -> Raise | None:
    """The first policy of the kind `raise` in a file; None without one, and for a file that cannot be read."""
    if not path.is_file():
        return None
    try:
        policies = load_policies(path).policies
    except UserError:  # `kquota enforce` reports it; the report is not about policies
        return None
    return next((policy for policy in policies if isinstance(policy, Raise)), None)


def raise_sums(cards: Iterable[Recommendation], room: Headroom) -> tuple[RaiseSum, ...]:
    """The sum of all raises by broker and type, beside the headroom."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for card in cards:
        if card.present is None or card.recommended is None or not card.brokers:
            continue
        more = card.recommended - card.present
        least = more if card.least is None else min(card.least - card.present, more)
        for broker_id in card.brokers:
            found.setdefault((broker_id, type_of(QuotaKey(card.key)).value), []).append((least, more))
    return tuple(
        RaiseSum(
            broker_id,
            quota_type,
            len(raises),
            sum(least for least, _ in raises),
            sum(more for _, more in raises),
            room.get((broker_id, quota_type)),
        )
        for (broker_id, quota_type), raises in sorted(found.items())
    )
