"""The file of `quotas.shadow`: read by the driver when it changes, and kept beside the checkpoint for the workers.

A version is the hash of what the file means, so a comment or another order begins no new version. A file that cannot be
read stops nothing: one line is printed, and the last good version stays in force, also after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.pipeline.shadow.rules import ShadowPin
from kquota_spark.quotas.any_file import quotas_of_file
from kquota_spark.store.storage import place_of

_VERSION_CHARACTERS = 12

Values = Mapping[Entity, Mapping[AnyKey, float]]
"""The values of users and client ids."""


class ShadowFile:
    """Follows the file from micro-batch to micro-batch; `pin` is the version in force, None before the first."""

    def __init__(self, settings: Settings, notice: Callable[[str], None]) -> None:
        self._settings, self._notice = settings, notice
        self._path = Path(settings.quotas.shadow)
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""
        self.pin: ShadowPin | None = None

    def look(self, open_from_ms: int) -> ShadowPin | None:
        """The version to judge by from now on; a changed file is read first.

        Args:
            open_from_ms: start of the open seconds, epoch ms: a new version begins there.
        """
        try:
            found = self._path.stat()
            seen = found.st_mtime_ns, found.st_size, found.st_ino
        except OSError:
            seen = None  # reading it reports why
        if seen is None or seen != self._seen:
            self._seen = seen
            self._read(open_from_ms)
        return self.pin

    def _read(self, open_from_ms: int) -> None:
        try:
            text = canonical(quotas_of_file(str(self._path)))
        except UserError as error:
            self._report(str(error).partition("\n")[0])
            return
        self._problem, name, version = "", shadow_name(self._settings), version_of(text)
        if self.pin is None or self.pin.version != version:
            write_note(self._settings, _place(self._settings, version), text)
            self.pin = ShadowPin(name, version, open_from_ms)
            self._notice(f"quotas.shadow: judging {name}, version {version}, beside the quotas in force")
        else:
            self.pin = self.pin._replace(name=name)

    def _report(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        kept = "no shadow until then" if self.pin is None else f"version {self.pin.version} stays in force"
        self._notice(f"warning: quotas.shadow: {problem}: mend the file; {kept}")


def shadow_name(settings: Settings) -> str:
    """The name of the shadow quotas: `quotas.shadow_name`, else that of the file without its suffix."""
    return settings.quotas.shadow_name or Path(settings.quotas.shadow).stem


def canonical(quotas: QuotaSet) -> bytes:
    """The quotas of users and client ids as JSON, alike for all files with the same meaning."""
    values = {
        str(entity): {
            key.value: value for key, value in sorted(found.items(), key=lambda each: each[0].value)
        }
        for entity, found in quotas.items()
        if isinstance(entity, Entity) and found
    }
    return msgspec.json.encode({name: values[name] for name in sorted(values)})


def version_of(text: bytes) -> str:
    """The version of canonical quotas: the first 12 digits of their SHA-256."""
    return hashlib.sha256(text).hexdigest()[:_VERSION_CHARACTERS]


def kept_values(settings: Settings, version: str) -> Values:
    """The quotas of a version, from their copy beside the checkpoint.

    Raises:
        UserError: the copy is missing or damaged.
    """
    place = _place(settings, version)
    text = read_note(settings, place)
    if text is None or version_of(text) != version:
        raise UserError(
            f"{place}: missing or damaged, expected the shadow quotas of this version: restore it"
        )
    found = msgspec.json.decode(text, type=dict[str, dict[str, float]])
    return {
        Entity.parse(name): {QuotaKey(key): value for key, value in values.items()}
        for name, values in found.items()
    }


def _place(settings: Settings, version: str) -> str:
    return place_of(settings.checkpoints, f"log.shadow/{version}.json")
