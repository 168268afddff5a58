"""Writes rows of a table as Parquet files on the machine that holds them; the driver commits the files by name.

So no row passes through the driver, and a commit of a million rows costs the same as one of a single row. Files that
are not committed are not part of the table: `kquota maintain` removes them.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kquota_spark.config.settings import Settings
from kquota_spark.process.clock import now_ms
from kquota_spark.schema.columns import Table
from kquota_spark.store.delta.durable import sync_files
from kquota_spark.store.storage import file_system, local_place_of, place_of

_ROWS_AT_ONCE = 100_000
_PARTITION = "event_date"


class Part(NamedTuple):
    """One file, with the fields of Delta's `add` action."""

    path: str
    """Relative to the table."""
    size: int
    event_date: str
    rows: int
    stats: str
    """JSON in Delta's form."""
    written_ms: int


def dataset_of(settings: Settings, table: Table, paths: Sequence[str]) -> ds.Dataset:
    """The rows of at least one file of a table that is partitioned by event_date; committed or not."""
    files, root = file_system(settings, place_of(settings.tables, table.name))
    return ds.dataset(
        [f"{root}/{path}" for path in paths],
        filesystem=files,
        partitioning=ds.partitioning(pa.schema([pa.field(_PARTITION, pa.date32())]), flavor="hive"),
        partition_base_dir=root,
        schema=table.arrow_schema(),
    )


class PartWriter:
    """Writes batches of rows of a table that is partitioned by event_date: one file per date."""

    def __init__(self, settings: Settings, table: Table, name: str = "part") -> None:
        """Prepare, and write nothing yet; the names of the files begin with `name`."""
        self._table, self._name = table, name
        self._files, self._root = file_system(settings, place_of(settings.tables, table.name))
        self._local = local_place_of(settings.tables, table.name)
        declared = table.arrow_schema()
        self._schema = pa.schema([field for field in declared if field.name != _PARTITION])
        self._waiting: dict[date, list[pa.RecordBatch]] = {}
        self._rows: Counter[date] = Counter()
        """Number of waiting rows by date."""
        self._open: dict[date, _OpenPart] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of the table."""
        dates = rows.column(_PARTITION)
        days: list[Any] = pc.unique(dates).to_pylist()
        for day in days:
            of_day = rows if len(days) == 1 else rows.filter(pc.equal(dates, pa.scalar(day)))
            of_day = of_day.select(self._schema.names)
            self._waiting.setdefault(day, []).append(of_day)
            self._rows[day] += of_day.num_rows
            if self._rows[day] >= _ROWS_AT_ONCE:
                self._flush(day)

    def close(self) -> Iterator[Part]:
        """Yield the files; each is complete and on the disk by then."""
        for day in list(self._waiting):
            self._flush(day)
        for day, part in self._open.items():
            stats = part.close()
            if self._local is not None:
                sync_files([self._local / part.path])
            size = int(self._files.get_file_info(f"{self._root}/{part.path}").size)
            yield Part(part.path, size, day.isoformat(), part.rows, stats, now_ms())

    def _flush(self, day: date) -> None:
        table = pa.Table.from_batches(self._waiting.pop(day)).cast(self._schema)
        del self._rows[day]
        if day not in self._open:
            directory = f"{_PARTITION}={day.isoformat()}"
            self._make_folder(directory)
            path = f"{directory}/{self._name}-{uuid.uuid4()}.snappy.parquet"
            writer = pq.ParquetWriter(f"{self._root}/{path}", self._schema, filesystem=self._files)
            self._open[day] = _OpenPart(path, writer, self._table.skip_by)
        self._open[day].write(table)

    def _make_folder(self, directory: str) -> None:
        if self._local is None:
            self._files.create_dir(f"{self._root}/{directory}", recursive=True)
        elif not (folder := self._local / directory).is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_files([folder])


class _OpenPart:
    """A file that is being written, and its statistics, by which readers may skip it."""

    def __init__(self, path: str, writer: pq.ParquetWriter, columns: tuple[str, ...]) -> None:
        self.path, self.rows = path, 0
        self._writer, self._columns = writer, columns
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.rows += table.num_rows
        for name in self._columns:
            column = table.column(name)
            self._nulls[name] += column.null_count
            found: Any = pc.min_max(column).as_py()
            if found["min"] is not None:
                low, high = self._bounds.get(name, (found["min"], found["max"]))
                self._bounds[name] = min(low, found["min"]), max(high, found["max"])

    def close(self) -> str:
        """Complete the file; return its statistics as JSON."""
        self._writer.close()
        lows = {name: _as_stat(low) for name, (low, _) in self._bounds.items()}
        highs = {name: _as_stat(high) for name, (_, high) in self._bounds.items()}
        return json.dumps(
            {"numRecords": self.rows, "minValues": lows, "maxValues": highs, "nullCount": self._nulls}
        )


def _as_stat(value: Any) -> Any:
    """A value for the statistics; times as text to the millisecond, as ours are whole seconds or milliseconds."""
    if hasattr(value, "isoformat"):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1_000:03}Z"
    return value
