"""The kill switch: one small JSON file beside the tables. While it exists, enforcement sends nothing.

An enforcer notes in a second file what it read each time. So people can check that it reads their switch.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from kquota_spark.checkpoints.notes import put_whole, read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Frozen, Reading
from kquota_spark.errors import UserError, one_line
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.store.storage import local_place_of, place_of

if TYPE_CHECKING:
    from pyarrow import fs

_LARGEST_BYTES = 100_000


class FreezeSwitch:
    """A `Switch` on the storage of the tables, local or an object store, so that every machine with access reads it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        name = f"_kquota/frozen-{sanitise(settings.cluster_id)}.json"
        self._local = local_place_of(settings.tables, name)
        self.where = place_of(settings.tables, name)
        """Path or URI of the file, for messages."""
        self._note = place_of(settings.tables, f"_kquota/switch-read-{sanitise(settings.cluster_id)}.json")

    def frozen(self) -> Frozen | None:
        """The freeze; None only if the switch is certainly off: the tables exist, and the file does not."""
        try:
            data = self._read()
            return None if data is None else _parsed(data)
        except (OSError, ValueError, RecursionError) as error:
            return Frozen(0, "unknown", f"{self.where} cannot be read ({one_line(error)[:300]})")

    def freeze(self, frozen: Frozen) -> None:
        """Stop all of our enforcement.

        Raises:
            UserError: there are no tables, or the file cannot be written.
        """
        if self._local is not None and not self._local.parent.parent.is_dir():
            raise UserError(f"there are no tables under {self._settings.tables}: nothing was frozen")
        try:
            put_whole(self._settings, self.where, json.dumps(frozen._asdict()).encode())
        except OSError as error:
            raise self._failed("written", error) from error

    def unfreeze(self) -> None:
        """Let enforcement continue.

        Raises:
            UserError: the file cannot be deleted.
        """
        try:
            if self._local is not None:
                self._local.unlink(missing_ok=True)
            elif self._read() is not None:
                files, path = self._remote()
                files.delete_file(path)
        except OSError as error:
            raise self._failed("deleted", error) from error

    def confirm(self, reader: str, at_ms: int, frozen: Frozen | None) -> None:
        """Note what an enforcer read.

        Args:
            reader: `host:pid` of the enforcer.
            at_ms: epoch ms of the reading.
            frozen: the freeze that it read; None if the switch was off.

        Raises:
            UserError: the note cannot be written.
        """
        where = str(self._local.absolute()) if self._local is not None else self.where
        reading = Reading(reader, where, at_ms, None if frozen is None else frozen.since_ms)
        write_note(self._settings, self._note, msgspec.json.encode(reading))

    def reading(self) -> Reading | None:
        """The last note of an enforcer; None if there is none, or it cannot be read."""
        with suppress(UserError, msgspec.MsgspecError, RecursionError):
            data = read_note(self._settings, self._note)
            return None if data is None else msgspec.json.decode(data, type=Reading)
        return None

    def _read(self) -> bytes | None:
        if self._local is not None:
            try:
                with self._local.open("rb") as file:
                    return file.read(_LARGEST_BYTES)
            except FileNotFoundError:
                # Without tables the disk may not be mounted.
                if self._local.parent.parent.is_dir():
                    return None
                raise
        from pyarrow import fs

        files, path = self._remote()
        if files.get_file_info(path).type is fs.FileType.NotFound:
            return None
        with files.open_input_stream(path) as stream:
            found: bytes = stream.read(_LARGEST_BYTES)
            return found

    def _remote(self) -> tuple[fs.FileSystem, str]:
        from kquota_spark.store.storage import file_system

        return file_system(self._settings, self.where)

    def _failed(self, what: str, error: OSError) -> UserError:
        return UserError(f"{self.where} cannot be {what}: {one_line(error)[:300]}")


def _parsed(data: bytes) -> Frozen:
    match json.loads(data):
        case {"since_ms": int(since_ms), "actor": str(actor), "reason": str(reason)}:
            return Frozen(since_ms, actor, reason)
    raise ValueError("not as kquota freeze writes it")
