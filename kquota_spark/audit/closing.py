"""The end of a run: `availableNow` leaves the last seconds open; a late heartbeat closes them.

It comes to the query through a source of its own, a folder beside the checkpoint: the job needs no right to write to
the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyarrow import fs

from kquota_spark.checkpoints.checkpoints import LOG, Checkpoint
from kquota_spark.checkpoints.notes import write_note
from kquota_spark.config.settings import Settings
from kquota_spark.pipeline.charges import CHARGED
from kquota_spark.store.places import place_of
from kquota_spark.store.storage import file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEYOND_MS = 2_000


def closings(session: SparkSession, settings: Settings) -> DataFrame:
    """The heartbeats of `close_all_windows` as a stream of rows of `CHARGED`."""
    if _written_ms(settings) < 0:
        _write(settings, 0)  # Spark wants a folder that is there
    found = session.readStream.schema("time_ms bigint").json(_folder(settings))
    given = {"record_time": "timestamp_millis(time_ms)"}
    columns = (
        f"CAST({given.get(each.name, 'NULL')} AS {each.type}) AS {each.name}" for each in CHARGED.columns
    )
    return found.selectExpr(*columns)


def close_all_windows(settings: Settings) -> None:
    """Write a heartbeat that is later than every line by the allowed lateness, so that every second is closed.

    A second drain of the same lines finds the heartbeat of the first and adds nothing.
    """
    checkpoint = Checkpoint.of(settings, LOG)
    if checkpoint.last_batch is None:
        return
    lateness_ms = settings.stream.allowed_lateness
    newest_ms = checkpoint.watermark_after_ms(checkpoint.last_batch) + lateness_ms
    if newest_ms > max(_written_ms(settings), lateness_ms):
        _write(settings, newest_ms + lateness_ms + _BEYOND_MS)


def _folder(settings: Settings) -> str:
    return place_of(settings.checkpoints, f"{LOG}.closing")


def _written_ms(settings: Settings) -> int:
    """The newest heartbeat; -1 for none, and no folder."""
    files, place = file_system(settings, _folder(settings))
    found = files.get_file_info(fs.FileSelector(place, allow_not_found=True))
    names = (info.base_name.removesuffix(".json") for info in found)
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _write(settings: Settings, time_ms: int) -> None:
    write_note(settings, f"{_folder(settings)}/{time_ms}.json", b'{"time_ms": %d}' % time_ms)
