"""Whether brokers were slow for other clients too while a bucket was throttled: what no quota explains."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.interference.suspects import Suspect, Victim, slow_broker
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.slow.reading import Period, of_topic
from kquota_spark.reports.why.positions import MOST_MESSAGES, is_topic_named


class SlowFor(NamedTuple):
    """A broker that was slow for clients outside of a bucket."""

    broker_id: int
    victims: tuple[Victim, ...]
    """Those outside of the bucket."""
    suspect: Suspect | None
    """The client with the work that explains it; None if there is none."""

    @property
    def before_ms(self) -> float:
        """The median of the usual waiting times of the victims, ms."""
        return median(victim.usual_ms for victim in self.victims)

    @property
    def during_ms(self) -> float:
        """The median of their waiting times while it was slow, ms."""
        return median(victim.slow_ms for victim in self.victims)


def slow_beside(
    settings: Settings, bucket: BucketName, from_ms: int, to_ms: int, progress: Callable[[str], None]
) -> list[SlowFor]:
    """The brokers that were slow for clients outside of a bucket, from the lines of the log topic.

    It is empty where the settings name no Kafka, where the topic has no lines of the period any more, and where it has
    more than `MOST_MESSAGES` of them.

    Args:
        settings: Kafka and the format of messages.
        bucket: the throttled bucket.
        from_ms: beginning of the period, epoch ms.
        to_ms: its end, exclusive.
        progress: gets a line now and then.
    """
    if not is_topic_named(settings):
        return []
    try:
        read = of_topic(settings, Period(from_ms, to_ms), None, progress, most=MOST_MESSAGES)
    except UserError:
        return []
    found = []
    for broker_id, windows in sorted(read.brokers.items()):
        one = slow_broker(windows)
        victims = tuple(victim for victim in one.victims if not _is_inside(bucket, victim))
        if victims:
            found.append(
                SlowFor(broker_id, victims, next((each for each in one.suspects if each.is_named), None))
            )
    return found


def _is_inside(bucket: BucketName, victim: Victim) -> bool:
    user, client_id = victim.client
    return bucket.user in ("", user) and bucket.client_id in ("", client_id)
