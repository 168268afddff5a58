"""The shipper's stored state of each broker's log, in one small file that is always whole."""

from __future__ import annotations

import fcntl
import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from kquota_spark.errors import UserError
from kquota_spark.process.replaced_file import write_whole
from kquota_spark.ship.rotated_files import Position


@dataclass(frozen=True, slots=True)
class ShipState:
    """The position up to which a log was shipped, and the totals so far.

    Attributes:
        position: None before the log was read for the first time.
        lines: lines shipped, each counted once, even if it was sent again after a crash.
        excluded: lines of our own clients, not shipped.
        cut: shipped lines that were too long and were cut.
    """

    position: Position | None = None
    lines: int = 0
    excluded: int = 0
    cut: int = 0


class StateDirectory:
    """A directory with `<broker id>.json` for each broker; created if absent. One process at a time may use a file.

    Raises:
        UserError: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._locks = ExitStack()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_cannot("be made", path, error)) from error

    def lock(self, broker_id: int) -> None:
        """Keep other shippers away until `close`, or until this process exits.

        Raises:
            UserError: another shipper is running, or the lock file cannot be opened.
        """
        path = self._path / f"{broker_id}.lock"
        try:
            file = self._locks.enter_context(path.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"{path}: another shipper is shipping the log of broker {broker_id}: stop it first"
            raise UserError(msg) from error
        except OSError as error:
            raise UserError(_cannot("be locked", path, error)) from error

    def read(self, broker_id: int) -> ShipState:
        """The state as last written; an empty one if it never was.

        Raises:
            UserError: the file cannot be read or is not a state file.
        """
        path = self._file(broker_id)
        try:
            stored = json.loads(path.read_bytes())
            return ShipState(**{**stored, "position": Position(**stored["position"])})
        except FileNotFoundError:
            return ShipState()
        except OSError as error:
            raise UserError(_cannot("be read", path, error)) from error
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{path}: not a state file of this version; delete it to ship the log from its start again"
            raise UserError(msg) from error

    def write(self, broker_id: int, state: ShipState) -> None:
        """Replace the state; after a crash of the machine the file holds the old or the new one.

        Raises:
            UserError: it cannot be written, e.g. because the disk is full.
        """
        path = self._file(broker_id)
        try:
            write_whole(path, json.dumps(asdict(state)).encode())
        except OSError as error:
            raise UserError(_cannot("be written", path, error)) from error

    def close(self) -> None:
        """Release the locks, so that other shippers can start."""
        self._locks.close()

    def _file(self, broker_id: int) -> Path:
        return self._path / f"{broker_id}.json"


def _cannot(what: str, path: Path, error: OSError) -> str:
    return f"{path}: cannot {what}: {error.strerror}; positions are kept in it (ship.state_dir)"
