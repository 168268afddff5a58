"""Settings for parsing request-log lines, the same for the job and for archived files."""

from __future__ import annotations

from kquota_spark.config.settings import Settings
from kquota_spark.kafka.questions import message_format
from kquota_spark.pipeline.ingest import IngestSettings


def clock_skew_ms(settings: Settings) -> int:
    """How far the time of a line may be ahead of the time when it was written, ms.

    It is half of the allowed lateness. All brokers share one watermark, and a clock that is ahead moves it forward. The
    other half keeps the seconds of the other brokers open.
    """
    return settings.stream.allowed_lateness // 2


def ingest_settings(settings: Settings) -> IngestSettings:
    """The settings of the stage INGEST."""
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
