"""What the fetches of a bucket read, from their log lines: the tables have no offsets.

The stream pays nothing for these fields. The lines of one bucket are read from the log topic again, at the offsets that
the table `requests` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from kquota_spark.config.settings import Settings
from kquota_spark.formats.messages.messages import LogMessages
from kquota_spark.formats.request_log.fetch_positions import fetch_positions
from kquota_spark.model.attribution.backlogs import Position
from kquota_spark.model.quotas.quota_types import QuotaType
from kquota_spark.reports.clients.what_if import WARM_UP_MS
from kquota_spark.reports.why.recorded import RequestKey, Wanted
from kquota_spark.store.reading import Tables

if TYPE_CHECKING:
    from kquota_spark.kafka.log_messages import Offsets, Place

Positions = Mapping[RequestKey, Sequence[Position]]
MOST_MESSAGES = 300_000
"""Maximum number of messages of the topic that are read for one bucket: about three seconds."""
_LINES = f"""
select topic, partition, kafka_offset, broker_id from requests
where cluster_id = ? and kind = 'request' and quota_type = '{QuotaType.FETCH.value}'
  and (? = '' or "user" = ?) and (? = '' or client_id = ?) and record_time_ms >= ? and record_time_ms < ?
order by record_time_ms limit {MOST_MESSAGES}
"""  # noqa: S608 - names of ours


def positions_of_lines(lines: Iterable[tuple[int, bytes]]) -> dict[RequestKey, Sequence[Position]]:
    """The positions of all fetches among lines.

    Args:
        lines: each with the id of its broker.
    """
    found: dict[RequestKey, Sequence[Position]] = {}
    for broker_id, line in lines:
        fetch = fetch_positions(line)
        if fetch is not None:
            found[broker_id, crc32(fetch.connection.encode()), fetch.correlation_id] = fetch.positions
    return found


def is_topic_named(settings: Settings) -> bool:
    """Whether the settings name the Kafka with the log topic; its default would be this machine."""
    return settings.kafka.has_log and "bootstrap_servers" in settings.kafka.given


def positions_of_topic(settings: Settings, tables: Tables, one: Wanted) -> Positions:
    """The positions of the fetches of a bucket, from the log topic.

    They are empty for other types, where the settings name no Kafka, and where the topic or the table has no lines of
    the period any more. Only the beginning of the period is read if the topic is busy.

    Args:
        settings: Kafka and the format of messages.
        tables: opened for queries.
        one: the bucket and the period.
    """
    if (
        one.bucket.quota_type != QuotaType.FETCH.value
        or not is_topic_named(settings)
        or not tables.open_if_there("requests")
    ):
        return {}
    from kquota_spark.kafka.log_messages import UnreadError, messages_at
    from kquota_spark.kafka.questions import message_format

    bucket = one.bucket
    names = bucket.user, bucket.user, bucket.client_id, bucket.client_id
    asked = [settings.cluster_id, *names, one.from_ms - WARM_UP_MS, one.to_ms]
    brokers = {
        (topic, partition, offset): broker_id
        for topic, partition, offset, broker_id in tables.query(_LINES, asked).rows
    }
    try:
        messages = messages_at(settings, _runs(brokers))
    except UnreadError:
        return {}
    layout = LogMessages(message_format(settings))
    of_bucket = (message for message in messages if message[:3] in brokers)
    lines = ((brokers[message[:3]], layout.line(message.value)) for message in of_bucket)
    return positions_of_lines((broker_id, found[0]) for broker_id, found in lines if found is not None)


def _runs(wanted: Iterable[tuple[str, int, int]]) -> dict[Place, Sequence[Offsets]]:
    """The offsets by partition, as many in order of time as lie within `MOST_MESSAGES`."""
    found: dict[Place, Offsets] = {}
    for topic, partition, offset in wanted:
        first, last = found.get((topic, partition), (offset, offset))
        longer = {**found, (topic, partition): (min(first, offset), max(last, offset))}
        if sum(end - begin + 1 for begin, end in longer.values()) > MOST_MESSAGES:
            break
        found = longer
    return {place: [run] for place, run in found.items()}
