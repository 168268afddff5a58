"""How lines of the request log are parsed, from the settings: the same for the job and for archived files."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.kafka.questions import message_format
from kquota_spark.pipeline.ingest import IngestSettings


def clock_skew_ms(settings: Settings) -> int:
    """How far a line may be ahead of the time by which it was written.

    Half of the lateness: the watermark is that of all brokers, and a clock that is ahead draws it along. So the seconds
    of the others stay open for the other half.
    """
    return settings.stream.allowed_lateness // 2


def ingest_settings(settings: Settings) -> IngestSettings:
    """What INGEST needs to know."""
    stream = settings.stream
    return IngestSettings(
        cluster_id=settings.cluster_id,
        log_time_zone=settings.broker.log_time_zone,
        allowed_clock_skew_ms=clock_skew_ms(settings),
        allowed_lateness_ms=stream.allowed_lateness,
        raw_text_limit_bytes=stream.raw_text_limit_bytes,
        messages=message_format(settings),
        log_time_zones=settings.broker.zones_by_broker,
    )
