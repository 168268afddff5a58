"""Samples of JMX that expired in Kafka before the query of JMX read them.

A missed sample makes no verdict uncertain, because each sample is judged by itself. At its start, the driver prints
what is missing. The query continues at the first sample that exists (failOnDataLoss = false).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kquota_spark.checkpoints.checkpoints import JMX, Checkpoint
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.kafka.questions import first_offsets
from kquota_spark.store.storage import place_of

Places = Iterable[tuple[str, int]]
"""Topics and partitions."""
Begins = Mapping[tuple[str, int], int]


def expired_samples(
    settings: Settings, begins_of: Callable[[Settings, Places], Begins] = first_offsets
) -> list[str]:
    """One line for each partition that has lost its next sample; none before the first micro-batch.

    `begins_of` asks Kafka for the first offset that exists, by topic and partition.

    Raises:
        UserError: the checkpoint cannot be read.
    """
    try:
        checkpoint, topic = Checkpoint.of(settings, JMX), settings.kafka.jmx_topic
        if not checkpoint.exists or checkpoint.last_batch is None:
            return []
        noted = checkpoint.source_offset(checkpoint.last_batch).get(topic, {})
    except (OSError, ValueError) as error:
        where = place_of(settings.checkpoints, JMX)
        raise UserError(f"checkpoint {where} cannot be read: {one_line(error)}") from error
    read_to = {(topic, int(partition)): offset for partition, offset in noted.items()}
    begins = begins_of(settings, read_to)
    return [
        f"{topic} partition {partition}: {begins[topic, partition] - offset:,} JMX messages from offset {offset} on "
        "expired before they were read; their seconds have no verdict by JMX: raise retention.ms of the topic above "
        "the longest pause of the audit"
        for (_, partition), offset in sorted(read_to.items())
        if begins.get((topic, partition), offset) > offset
    ]
