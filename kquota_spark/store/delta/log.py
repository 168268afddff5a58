"""The log of a Delta table as files: what each commit added, and the removal of old entries."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from pyarrow import fs

_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")


class AddedFile(NamedTuple):
    """A file that a commit added."""

    path: str
    """As the log names it: URL-encoded, and relative to the table."""
    stats: str
    """Statistics of its columns as JSON; empty for none."""

    def newest_ms(self, column: str) -> int | None:
        """The newest time in a column, epoch ms; None if the statistics do not hold it."""
        newest = json.loads(self.stats or "{}").get("maxValues", {}).get(column)
        if isinstance(newest, str):
            return round(datetime.fromisoformat(newest).timestamp() * 1_000)
        return newest if isinstance(newest, int) else None


class TableLog:
    """The log of one table.

    Args:
        files: the file system.
        root: path of the table in it.
    """

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files, self._log = files, f"{root}/_delta_log"

    def appended(self, version: int) -> Sequence[AddedFile]:
        """The files with new rows of a commit; none if it changed rows, or only moved them to other files.

        Raises:
            FileNotFoundError: the entry was removed.
        """
        actions = self._actions(version)
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            return ()
        added = (action["add"] for action in actions if "add" in action)
        return [AddedFile(str(add["path"]), add.get("stats") or "") for add in added if add["dataChange"]]

    def paths_of(self, writer: str, number: int) -> list[str] | None:
        """The files that the commit with this number of a writer added; None if the log has no such commit."""
        infos = self._files.get_file_info(fs.FileSelector(self._log))
        names = (info.base_name.removesuffix(".json") for info in infos if info.extension == "json")
        wanted = {"appId": writer, "version": number}
        for version in sorted((int(name) for name in names if name.isdigit()), reverse=True):
            actions = self._actions(version)
            txns = [action["txn"] for action in actions if "txn" in action]
            if any(wanted.items() <= txn.items() for txn in txns):
                return [action["add"]["path"] for action in actions if "add" in action]
            if any(txn["appId"] == writer and txn["version"] < number for txn in txns):
                return None
        return None

    def trim(self, kept: int, most: int) -> int:
        """Remove the entries before the newest checkpoint that has this many newer commits; return how many.

        Args:
            kept: newer commits that stay.
            most: maximum entries to remove.

        Raises:
            OSError: the log cannot be listed, or an entry cannot be removed.
        """
        found = self._files.get_file_info(fs.FileSelector(self._log, allow_not_found=True))
        matches = [(info, match) for info in found if (match := _ENTRY.fullmatch(info.base_name))]
        newest = max((int(match[1]) for _, match in matches if match[2] == "json"), default=0)
        whole = [int(match[1]) for _, match in matches if match[2] != "json"]
        first_kept = max((version for version in whole if version <= newest - kept), default=0)
        # Oldest first: a call that is cut off leaves no gap.
        old = sorted(info.path for info, match in matches if int(match[1]) < first_kept)[:most]
        for path in old:
            with suppress(FileNotFoundError):  # another process may clean too
                self._files.delete_file(path)
        return len(old)

    def _actions(self, version: int) -> list[dict[str, Any]]:
        with self._files.open_input_stream(f"{self._log}/{version:020}.json") as stream:
            return [json.loads(line) for line in stream.read().splitlines()]
