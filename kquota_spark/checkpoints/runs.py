"""Which run of the job works at a query: the one that started last, wherever it runs.

The driver lock holds on one machine or shared file system, and a lease only if its holder beats. A driver may wake up
after another one has taken its place: from a frozen host, or behind a cut network. Each run leaves a note of its own
beside the checkpoint, and ends when it finds that of a later one. What two runs commit before that is refused by
`store.commits`.
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
    """Number of the lease that the run had; 0 under a file lock."""


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
            UserError: one has, or the note cannot be read.
        """
        self.hold.require()
        path = _path(self.settings, self.query)
        with suppress(msgspec.DecodeError):  # without a readable note nobody is known to have started
            noted = msgspec.json.decode(read_note(self.settings, path) or b"", type=_Noted)
            # One that was paused before it wrote its note may replace that of its successor.
            if noted.run_id != self.run_id and noted.lease >= self.hold.number:
                raise UserError(
                    f"checkpoint {place_of(self.settings.checkpoints, self.query)}: another driver took it over at "
                    f"{utc_text(noted.started_ms)} (host {noted.host}, pid {noted.pid}), so this one has ended: let "
                    "one scheduler start the audit, once"
                )


def begun_run(settings: Settings, query: str, hold: Hold | None = None) -> Run:
    """A new run of a query, noted in place of the one before, which ends at its next micro-batch.

    Args:
        settings: where the checkpoints are.
        query: which.
        hold: the right to run it; None for a file lock, which needs no more checks.

    Raises:
        UserError: the note cannot be written.
    """
    hold = hold or Hold()
    noted = _Noted(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now_ms(), hold.number)
    write_note(settings, _path(settings, query), msgspec.json.encode(noted))
    return Run(settings, query, noted.run_id, hold)


def _path(settings: Settings, query: str) -> str:
    return place_of(settings.checkpoints, f"{query}.run.json")
