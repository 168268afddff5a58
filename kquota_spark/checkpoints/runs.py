"""Decides which run of the job may process a query: the one that started last, on any machine.

The driver lock works on one machine or a shared file system, and a lease only while its holder beats. A driver on a
frozen host or behind a cut network may resume after another one has taken its place. So each run writes a note beside
the checkpoint, and ends when it finds the note of a later run. `store.commits` refuses double commits of two runs
before that.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from kquota_spark.checkpoints.driver_lease import Hold
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.process.clock import now_ms
from kquota_spark.store.reading import utc_text
from kquota_spark.store.storage import place_of


class _Noted(msgspec.Struct):
    run_id: str
    host: str
    pid: int
    started_ms: int
    lease: int = 0
    """Number of the run's lease; 0 under a file lock."""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of one query."""

    settings: Settings
    query: str
    run_id: str
    hold: Hold

    def require_newest(self) -> None:
        """Check that no other run has started since.

        Raises:
            UserError: another run has started, or the note cannot be read.
        """
        self.hold.require()
        path = _path(self.settings, self.query)
        with suppress(msgspec.DecodeError):  # a damaged note proves no later start
            noted = msgspec.json.decode(read_note(self.settings, path) or b"", type=_Noted)
            # A run that was paused before it wrote its note may replace the note of its successor.
            if noted.run_id != self.run_id and noted.lease >= self.hold.number:
                raise UserError(
                    f"checkpoint {place_of(self.settings.checkpoints, self.query)}: another driver took it over at "
                    f"{utc_text(noted.started_ms)} (host {noted.host}, pid {noted.pid}), so this one has ended: let "
                    "one scheduler start the audit, once"
                )


def begun_run(settings: Settings, query: str, hold: Hold | None = None) -> Run:
    """Begin a run of a query. Its note replaces that of the earlier run, which ends at its next micro-batch.

    Args:
        settings: where the checkpoints are.
        query: name of the query.
        hold: the right to run it; None for a file lock, which needs no further checks.

    Raises:
        UserError: the note cannot be written.
    """
    hold = hold or Hold()
    noted = _Noted(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now_ms(), hold.number)
    write_note(settings, _path(settings, query), msgspec.json.encode(noted))
    return Run(settings, query, noted.run_id, hold)


def _path(settings: Settings, query: str) -> str:
    return place_of(settings.checkpoints, f"{query}.run.json")
