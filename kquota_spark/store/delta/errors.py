"""The errors of Delta tables as ours, and retries of a commit that another writer overtook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from kquota_spark.errors import UserError, one_line

ResultT = TypeVar("ResultT")


class MissingTableError(UserError):
    """There is no such table."""


class OvertakenError(UserError):
    """Another writer changed the same rows first."""


@contextmanager
def delta_errors(what: str, *also: type[Exception]) -> Iterator[None]:
    """Turn errors of Delta and of the storage into ours: `{what}: {reason}`.

    Args:
        what: what failed, e.g. `table usage cannot be read`.
        also: further errors that the block may raise for a damaged table.

    Raises:
        MissingTableError: there is no such table.
        OvertakenError: another writer committed first.
        UserError: any other of these errors.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    caught: tuple[type[Exception], ...] = (DeltaError, OSError, *also)
    try:
        yield
    except caught as error:
        kinds = {TableNotFoundError: MissingTableError, CommitFailedError: OvertakenError}
        ours = next((ours for kind, ours in kinds.items() if isinstance(error, kind)), UserError)
        raise ours(f"{what}: {one_line(error)}") from error


def committed(commit: Callable[[], ResultT], attempts: int, overtaken: str = "") -> ResultT:
    """Run a commit, and retry it if another writer was faster; each attempt has to read again what it replaces.

    Args:
        commit: the commit.
        attempts: how often it is tried.
        overtaken: the message if another writer was faster each time; empty to raise Delta's own error.

    Raises:
        CommitFailedError: another writer was faster each time.
        UserError: the same, if `overtaken` is given.
    """
    from deltalake.exceptions import CommitFailedError

    for _ in range(attempts - 1):
        with suppress(CommitFailedError):
            return commit()
    try:
        return commit()
    except CommitFailedError as error:
        if overtaken:
            raise UserError(overtaken) from error
        raise
