"""deltalake's own file systems, for Arrow: of a table, and of Google with a key file, which Arrow's own class lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs


def table_files(place: str, options: Mapping[str, str] | None) -> fs.FileSystem:
    """The files of a table, by their paths below it.

    Args:
        place: path or URI.
        options: deltalake's; None leaves them to the environment.
    """
    return fs.PyFileSystem(DeltaStorageHandler(place, None if options is None else dict(options)))


class _WithBytes:
    """A file of deltalake that accepts the buffers that Arrow writes; deltalake itself expects bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> Any:
        return self._file.write(bytes(data))


class _Files(DeltaStorageHandler):
    """deltalake's file system, made writable for Arrow."""

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.PythonFile:
        """A file to write; the object exists after the file is closed."""
        made = self._handler.open_output_stream(path, None if metadata is None else dict(metadata))
        return pa.PythonFile(_WithBytes(made), mode="w")  # type: ignore[arg-type]


def google_files(bucket: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The files of a bucket, by their paths below it.

    Args:
        bucket: its name.
        options: deltalake's, with the key file.
    """
    return fs.PyFileSystem(_Files(f"gs://{bucket}", dict(options)))
