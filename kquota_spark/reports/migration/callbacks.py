"""Recorded traffic under a quota callback, with brokers before and after: some give it no metadata of the cluster.

Source: KAFKA-18225 (KRaft brokers before 4.0), KAFKA-19566 (brokers from 5.0 on).
A callback that scales limits by the partitions which a broker leads then sees no partition.
"""

from __future__ import annotations

from kquota_spark.config.governor import opened_governor
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.compare.tried_brokers import TriedBrokers
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.rules import RuleBook
from kquota_spark.reports.clients.judged_groups import Flips, Side
from kquota_spark.reports.clients.what_if import Difference, what_if
from kquota_spark.reports.review.affected import waiting
from kquota_spark.reports.review.review import Affected, Replayed
from kquota_spark.store.reading import Tables

MOST_REQUESTS = 1_000_000
"""Maximum requests of one replay under a callback."""
_REQUESTS = """
select coalesce(sum(requests), 0)::bigint from usage
where cluster_id = ? and usage.second >= make_timestamptz(?::bigint) and usage.second < make_timestamptz(?::bigint)
"""


def differences_by_callback(
    settings: Settings, book: RuleBook, leaders: LeaderBook, brokers: TriedBrokers, period: tuple[int, int]
) -> list[Affected]:
    """The buckets of the callback that change, those with the largest change of delay first.

    Args:
        settings: with the callback.
        book: the quotas over time.
        leaders: leaders of partitions over time.
        brokers: those after the change.
        period: first second and end, epoch ms.

    Raises:
        UserError: a table or the callback cannot be loaded, or the period has more than `MOST_REQUESTS`.
    """
    with Tables(settings) as tables:
        tables.open("usage", period[0])
        times = (time_ms * 1_000 for time_ms in period)
        [[requests]] = tables.query(_REQUESTS, [settings.cluster_id, *times]).rows
    if requests > MOST_REQUESTS:
        raise UserError(
            f"{requests:,} requests in the period, and a replay under a quota callback takes at most "
            f"{MOST_REQUESTS:,}: give a shorter --since"
        )
    is_given = brokers.gives_metadata(settings.broker.version)
    with (
        opened_governor(settings, book, leaders) as before,
        opened_governor(settings, book, leaders if is_given else LeaderBook()) as after,
    ):
        found = what_if(settings, before, after, *period, brokers=brokers)
    changed = [each for each in found.differences if _is_changed(each)]
    return sorted(map(_affected, changed), key=lambda one: -abs(one.replay.more_ms if one.replay else 0))


def _is_changed(each: Difference) -> bool:
    limits = [None if side is None else side.limit_per_s for side in (each.before, each.after)]
    return limits[0] != limits[1] or each.throttled_ms[0] != each.throttled_ms[1] or each.flips != Flips()


def _affected(each: Difference) -> Affected:
    before, after = each.before or Side(None), each.after or Side(None)
    replay = Replayed(
        before.throttled_requests,
        after.throttled_requests,
        *each.throttled_ms,
        after.unknown,
        each.flips.only_before,
        each.flips.only_after,
        closed=None,
        beside=waiting(each.closed),
    )
    return Affected(
        each.quota_type.value,
        (each.bucket,),
        (),
        ((before.limit_per_s, after.limit_per_s),),
        False,
        (),
        each.amount,
        replay,
    )
