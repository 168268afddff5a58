"""Is a checkpoint whole, and that of this query over these tables? Asked before Spark starts, answered in a line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pyarrow import fs

from kquota_spark.checkpoints.checkpoints import LOG, Checkpoint
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.store.places import place_of

_STATES = (0, 1)
"""Of the query of the log: the seconds that are open, and the rings."""
_NOTED_PATH = re.compile(r'"file:([^"]+)(/state/\d+/_stateSchema/[^"]+)"')


def require_whole(settings: Settings, query: str) -> bool:
    """Whether the query has a checkpoint.

    Raises:
        UserError: it has one that is half copied, of another query, or of other tables.
    """
    try:
        checkpoint = Checkpoint.of(settings, query)
        is_there = checkpoint.exists
        problem = _problem(settings, query, checkpoint)
    except (OSError, ValueError) as error:
        problem = f"it cannot be read ({one_line(error)})"
    if problem:
        raise UserError(
            f"checkpoint {place_of(settings.checkpoints, query)}: {problem}: restore it, or move it away and start "
            "with --new-lineage"
        )
    return is_there


def _problem(settings: Settings, query: str, checkpoint: Checkpoint) -> str:
    last, planned = checkpoint.last_batch, checkpoint.planned_batches
    if not checkpoint.exists:
        return "its file metadata is missing, so it was not copied as a whole" if planned else ""
    if last is None:
        return ""  # nothing was done yet
    if last not in planned or planned[-1] > last + 1:
        missing = f"offsets/{last}" if last not in planned else f"commits/{planned[-1] - 1}"
        return f"its file {missing} is missing, so it was not copied as a whole"
    try:
        offset = checkpoint.source_offset(last)
        batch_settings = json.loads(checkpoint.read(f"offsets/{last}").splitlines()[1])
    except ValueError as error:
        return f"its file offsets/{last} cannot be read ({one_line(error)})"
    if query == LOG and not _has_state(checkpoint, batch_settings):
        return "its folder state is missing or not whole"
    return _foreign(settings, query, offset) or _moved(checkpoint)


def _has_state(checkpoint: Checkpoint, batch_settings: dict[str, Any]) -> bool:
    partitions = int(batch_settings["conf"]["spark.sql.shuffle.partitions"])
    places = (f"state/{operator}/{partition}" for operator in _STATES for partition in range(partitions))
    return all(map(checkpoint.has_files, places))


def _moved(checkpoint: Checkpoint) -> str:
    """Spark notes where the schema of a state of transformWithState is, as a whole path, and looks there."""
    if not isinstance(checkpoint.files, fs.LocalFileSystem):
        return ""
    noted = (Path(checkpoint.path) / "state").glob("*/_metadata/v2/[0-9]*")
    paths = [path for file in noted for path in _NOTED_PATH.findall(file.read_text(encoding="utf-8"))]
    for place, rest in paths:
        if not Path(place + rest).exists():
            return f"it was made at {place} and cannot be used elsewhere: Spark notes that path in it"
    return ""


def _foreign(settings: Settings, query: str, offset: dict[str, Any]) -> str:
    """Whose it is, if not this query's: Kafka's offsets name topics."""
    kafka = settings.kafka
    meant = kafka.log_topics(offset) if query == LOG else [kafka.jmx_topic]
    if not offset.keys().isdisjoint(meant):
        return ""
    said = kafka.subscription[1] if query == LOG else kafka.jmx_topic
    return f"it reads topic {', '.join(sorted(offset))}, and the settings say {said}"
