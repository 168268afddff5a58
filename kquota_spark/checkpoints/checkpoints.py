"""Reads a streaming query's checkpoint: how far it has read, and whether it is complete and the right one."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError, one_line
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.schema.shadow_tables import SHADOW_DECISIONS
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.storage import file_system, place_of

LOG, JMX = "log", "jmx"
"""The queries; their names are also those of their checkpoints."""
TARGETS = {
    LOG: (REQUESTS.name, USAGE.name, DECISIONS.name),
    JMX: (JMX_SAMPLES.name, USAGE.name, DECISIONS.name),
}
"""The tables that each query writes, in the order in which a micro-batch commits them; `violations` come last."""


def targets_of(settings: Settings, query: str) -> tuple[str, ...]:
    """The tables that a query writes; that of the shadow quotas only if there are any."""
    is_shadowed = query == LOG and bool(settings.quotas.shadow)
    return (*TARGETS[query], SHADOW_DECISIONS.name) if is_shadowed else TARGETS[query]


KEPT_BATCHES = 10
"""Micro-batches that Spark keeps in a checkpoint: its default of 100 would keep 100 versions of the state."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint directory of one query; read through Arrow's file systems, so it may be on an object store."""

    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, settings: Settings, query: str) -> Checkpoint:
        """The checkpoint of a query.

        Raises:
            OSError: Arrow has no such file system.
        """
        return cls(*file_system(settings, place_of(settings.checkpoints, query)))

    @property
    def exists(self) -> bool:
        """Whether the query was ever started."""
        return bool(self.files.get_file_info(f"{self.path}/metadata").type == fs.FileType.File)

    @cached_property
    def last_batch(self) -> int | None:
        """The last micro-batch that Spark recorded as done; None for none."""
        return max(self._batches("commits"), default=None)

    @cached_property
    def planned_batches(self) -> list[int]:
        """Micro-batches that were begun, oldest first; only those that Spark still keeps."""
        return sorted(self._batches("offsets"))

    def source_offset(self, batch: int) -> dict[str, Any]:
        """The offsets after a micro-batch, by topic and partition; empty for a source without topics.

        Raises:
            OSError: the file is not there.
            ValueError: it is damaged.
        """
        noted = self._noted(batch, 2)
        return {topic: places for topic, places in noted.items() if isinstance(places, dict)}

    def batch_time_ms(self, batch: int) -> int:
        """When a micro-batch was planned, epoch ms; errors as for `source_offset`."""
        return int(self._noted(batch, 1).get("batchTimestampMs", 0))

    def watermark_ms(self, batch: int) -> int:
        """The watermark of a planned micro-batch, epoch ms: earlier seconds are closed; errors as `source_offset`."""
        return int(self._noted(batch, 1).get("batchWatermarkMs", 0))

    def watermark_after_ms(self, batch: int) -> int:
        """The watermark that a finished micro-batch left for the next one, epoch ms; errors as for `source_offset`.

        The batch's own watermark does not include the events that it read itself. A job that is killed right after the
        batch has not planned another one with a newer watermark.
        """
        done = self.read(f"commits/{batch}").splitlines()
        if len(done) < 2:
            raise ValueError("it is cut off")
        left_ms = int(json.loads(done[1]).get("nextBatchWatermarkMs", 0))
        return max(left_ms, self.watermark_ms(batch))

    def _noted(self, batch: int, line: int) -> dict[str, Any]:
        lines = self.read(f"offsets/{batch}").splitlines()
        # Line 1 is a version, line 2 the batch's settings; then a line for each source, the topics first.
        if len(lines) < 3 or not lines[0].startswith("v"):
            raise ValueError("it is cut off")
        found = json.loads(lines[line])
        if not isinstance(found, dict):
            raise ValueError("it is of another kind")
        return found

    @property
    def query_id(self) -> str:
        """Spark's id of the query; a new checkpoint gets a new id.

        Raises:
            OSError: the query was never started.
            ValueError: the file is damaged.
        """
        return str(json.loads(self.read("metadata"))["id"])

    def read(self, name: str) -> str:
        """The text of a file.

        Raises:
            OSError: it is not there.
        """
        with self.files.open_input_stream(f"{self.path}/{name}") as stream:
            return str(stream.read().decode("utf-8", "replace"))

    def has_files(self, directory: str) -> bool:
        """Whether a directory exists and is not empty."""
        selector = fs.FileSelector(f"{self.path}/{directory}", allow_not_found=True)
        return bool(self.files.get_file_info(selector))

    def _batches(self, directory: str) -> list[int]:
        selector = fs.FileSelector(f"{self.path}/{directory}", allow_not_found=True)
        names = [info.base_name for info in self.files.get_file_info(selector)]
        return [int(name) for name in names if name.isdigit()]


class Unfinished(NamedTuple):
    """A micro-batch that has not ended: the time when it was planned, epoch ms, and its query."""

    planned_ms: int
    query: str


def oldest_unfinished(settings: Settings) -> Unfinished | None:
    """The oldest unfinished micro-batch of the queries that may run; None for none, or if it cannot be read.

    Workers may have written files for it that are not committed. After a stop it runs again at the next start. A query
    does not run if its topic is no longer in the settings: its micro-batch never ends.
    """
    used = (name for name in TARGETS if _may_run(settings, name))
    found = [
        Unfinished(ms, name) for name in used if (ms := _oldest_unfinished_ms(settings, name)) is not None
    ]
    return min(found, default=None)


def _oldest_unfinished_ms(settings: Settings, query: str) -> int | None:
    found = list[int]()
    # An unreadable checkpoint counts as no micro-batch here; the next start reports it (`require_whole`).
    with suppress(OSError, ValueError):
        checkpoint = Checkpoint.of(settings, query)
        done = -1 if checkpoint.last_batch is None else checkpoint.last_batch
        begun = [batch for batch in checkpoint.planned_batches if batch > done]
        found += [checkpoint.batch_time_ms(batch) for batch in begun]
    return min(found, default=None)


def _may_run(settings: Settings, query: str) -> bool:
    # A setting that cannot be resolved here may name a topic for the job.
    with suppress(UserError):
        return settings.kafka.has_log if query == LOG else bool(settings.kafka.jmx_topic)
    return True


_STATES = (0, 1)
"""Numbers of the stateful operators in the query of the log: the open seconds, and the rings."""
_NOTED_PATH = re.compile(r'"file:([^"]+)(/state/\d+/_stateSchema/[^"]+)"')


def require_whole(settings: Settings, query: str) -> bool:
    """Check the checkpoint of a query; return whether there is one.

    Raises:
        UserError: it is incomplete, cannot be read, was moved, or reads another query's topics.
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
    """The problem of a moved checkpoint: Spark stores the absolute path of a transformWithState schema; or empty."""
    if not isinstance(checkpoint.files, fs.LocalFileSystem):
        return ""
    noted = (Path(checkpoint.path) / "state").glob("*/_metadata/v2/[0-9]*")
    paths = [path for file in noted for path in _NOTED_PATH.findall(file.read_text(encoding="utf-8"))]
    for place, rest in paths:
        if not Path(place + rest).exists():
            return f"it was made at {place} and cannot be used elsewhere: Spark notes that path in it"
    return ""


def _foreign(settings: Settings, query: str, offset: dict[str, Any]) -> str:
    """The problem of another query's checkpoint, recognised by the topics in its offsets; empty for none."""
    kafka = settings.kafka
    meant = kafka.log_topics(offset) if query == LOG else [kafka.jmx_topic]
    if not offset.keys().isdisjoint(meant):
        return ""
    topic = kafka.subscription[1] if query == LOG else kafka.jmx_topic
    return f"it reads topic {', '.join(sorted(offset))}, and the settings say {topic}"
