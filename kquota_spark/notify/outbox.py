"""The outbox: one small file beside the tables, always complete, which is written before anything is sent."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.quotas.names import sanitise
from kquota_spark.notify.news.state import FORM, State
from kquota_spark.store.storage import local_place_of, place_of


class Outbox:
    """The file of one cluster, local or in an object store."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = f"_kquota/notify-{sanitise(settings.cluster_id)}"
        self.where = place_of(settings.tables, f"{self._name}.json")
        """Path or URI of the file, for messages."""
        self._written = b""

    def read(self) -> State:
        """The state that was written last; the state of a first start if there is no file.

        Raises:
            UserError: the file cannot be read, or is from another release.
        """
        data = read_note(self._settings, self.where)
        if data is None:
            return State()
        try:
            state = msgspec.json.decode(data, type=State)
        except msgspec.DecodeError as error:
            raise self._unreadable() from error
        if state.form != FORM:
            raise self._unreadable()
        self._written = data
        return state

    def write(self, state: State) -> None:
        """Replace the file if the state has changed; it is durable when this returns.

        Raises:
            UserError: it cannot be written.
        """
        data = msgspec.json.encode(state)
        if data != self._written:
            write_note(self._settings, self.where, data)
            self._written = data

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock out other notifiers of the cluster; on an object store there is no lock, so start only one.

        Raises:
            UserError: another notifier is running, or the folder cannot be written.
        """
        local = local_place_of(self._settings.tables, f"{self._name}.lock")
        if local is None:
            yield
            return
        if not local.parent.parent.is_dir():
            raise UserError(
                f"tables path {self._settings.tables} does not exist: run the audit first, or correct tables:"
            )
        try:
            local.parent.mkdir(exist_ok=True)
            file = local.open("w")
        except OSError as error:
            raise UserError(f"{local}: cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{local}: another kquota notify of this cluster is at work: stop it first"
                ) from error
            yield

    def _unreadable(self) -> UserError:
        return UserError(
            f"{self.where}: not an outbox of this release: delete it to begin anew, without what waits in it"
        )
