"""What a streaming query's checkpoint says: how far it has read, and whether it is a whole one and the right one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyarrow import fs

from kquota_spark.config.settings import Settings
from kquota_spark.schema.broker_tables import JMX_SAMPLES
from kquota_spark.schema.tables import DECISIONS, REQUESTS, USAGE
from kquota_spark.store.places import place_of
from kquota_spark.store.storage import file_system

LOG, JMX = "log", "jmx"
"""The queries, which are also the names of their checkpoints."""
TARGETS = {
    LOG: (REQUESTS.name, USAGE.name, DECISIONS.name),
    JMX: (JMX_SAMPLES.name, USAGE.name, DECISIONS.name),
}
"""The tables that each query writes, in the order in which a micro-batch commits them; `violations` come last."""


@dataclass(frozen=True)
class Checkpoint:
    """The directory of one query; read through Arrow's file systems, so that an object store does as well."""

    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, settings: Settings, query: str) -> Checkpoint:
        """The checkpoint of a query.

        Raises:
            OSError: Arrow knows no such file system.
        """
        return cls(*file_system(settings, place_of(settings.checkpoints, query)))

    @property
    def exists(self) -> bool:
        """Whether the query was ever started."""
        return self._is_file("metadata")

    @cached_property
    def last_batch(self) -> int | None:
        """The last micro-batch that Spark noted as done."""
        return max(self._batches("commits"), default=None)

    @cached_property
    def planned_batches(self) -> list[int]:
        """Micro-batches that were begun, as far as Spark keeps them."""
        return sorted(self._batches("offsets"))

    def source_offset(self, batch: int) -> dict[str, Any]:
        """Where the topics stood after a micro-batch, by topic and partition.

        Raises:
            OSError: the file is not there.
            ValueError: it is not as Spark writes it.
        """
        return self._noted(batch, 2)

    def batch_time_ms(self, batch: int) -> int:
        """When a micro-batch was planned, epoch ms; raises as `source_offset`."""
        return int(self._noted(batch, 1).get("batchTimestampMs", 0))

    def watermark_ms(self, batch: int) -> int:
        """The watermark of a planned micro-batch, epoch ms: seconds before it are closed; raises as `source_offset`."""
        return int(self._noted(batch, 1).get("batchWatermarkMs", 0))

    def watermark_after_ms(self, batch: int) -> int:
        """The watermark that a finished micro-batch left for the next one, epoch ms; raises as `source_offset`.

        The batch's own watermark does not count what it read itself: a job that is killed right after it has planned no
        other.
        """
        done = self.read(f"commits/{batch}").splitlines()
        if len(done) < 2:
            raise ValueError("it is cut off")
        left_ms = int(json.loads(done[1]).get("nextBatchWatermarkMs", 0))
        return max(left_ms, self.watermark_ms(batch))

    def _noted(self, batch: int, line: int) -> dict[str, Any]:
        lines = self.read(f"offsets/{batch}").splitlines()
        # A version, the batch's own settings, and a line for each source, the topics first.
        if len(lines) < 3 or not lines[0].startswith("v"):
            raise ValueError("it is cut off")
        found = json.loads(lines[line])
        if not isinstance(found, dict):
            raise ValueError("it is of another kind")
        return found

    @property
    def query_id(self) -> str:
        """Spark's id of the query: another one after the checkpoint was begun anew.

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
        """Whether a directory is there and holds something."""
        selector = fs.FileSelector(f"{self.path}/{directory}", allow_not_found=True)
        return bool(self.files.get_file_info(selector))

    def _is_file(self, name: str) -> bool:
        return bool(self.files.get_file_info(f"{self.path}/{name}").type == fs.FileType.File)

    def _batches(self, directory: str) -> list[int]:
        selector = fs.FileSelector(f"{self.path}/{directory}", allow_not_found=True)
        names = [info.base_name for info in self.files.get_file_info(selector)]
        return [int(name) for name in names if name.isdigit()]
