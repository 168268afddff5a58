"""Why a streaming query failed, in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.places import place_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_REASON_LENGTH = 400
_OVERFLOW = re.compile(
    r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value \S+ that overflows"
)
_PYTHON_ERROR = re.compile(r"^[A-Za-z_][\w.]*: .*|^[A-Za-z_][\w.]*(?:Error|Exception)$", re.MULTILINE)


def raise_failure(settings: Settings, query: StreamingQuery) -> None:
    """Raise what ended a query, if anything did, as one line.

    Raises:
        UserError: the query failed.
    """
    failure = query.exception()
    if failure is None:
        return
    reason = reason_of(str(failure))
    raise UserError(
        f"query {query.name} failed and the job was stopped; nothing is lost, the next start resumes at its "
        f"checkpoint {place_of(settings.checkpoints, query.name)}: {reason}"
    )


def _of_overflow(topic: str, partition: str, offset: str) -> str:
    """Spark's source cannot skip such a message."""
    return (
        f"topic {topic} partition {partition} offset {offset} has a time that Spark cannot hold. Set "
        "message.timestamp.type=LogAppendTime on the topic, and remove the message with kafka-delete-records.sh "
        f"(offset {int(offset) + 1}); lines before it that were not read are then gaps"
    )


def reason_of(failure: str) -> str:
    """The line of a query's failure that says why: what a Python worker raised, or the innermost Java cause."""
    overflow = _OVERFLOW.search(failure)
    if overflow is not None:
        return _of_overflow(*overflow.groups())
    _, traceback, raised = failure.rpartition("Traceback (most recent call last):")
    found = _PYTHON_ERROR.search(raised) if traceback else None
    if found:
        return found.group()[:_REASON_LENGTH]
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by", "org.", "java.", "pyspark."))]
    return (causes or lines or ["unknown"])[-1 if causes else 0][:_REASON_LENGTH]
