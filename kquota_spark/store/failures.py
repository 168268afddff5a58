"""Errors of Delta as errors for users, and commits that are tried again. Only `store` knows deltalake's own errors."""

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
        what: could not be done, e.g. `table usage cannot be read`.
        also: further errors that the block may raise for a damaged table.

    Raises:
        MissingTableError: there is no such table.
        OvertakenError: a commit came second.
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


def committed(commit: Callable[[], ResultT], attempts: int) -> ResultT:
    """Run a commit, and run it again whenever another writer was faster; it has to read anew what it replaces.

    Raises:
        CommitFailedError: another writer was faster each time.
    """
    from deltalake.exceptions import CommitFailedError

    for _ in range(attempts - 1):
        with suppress(CommitFailedError):
            return commit()
    return commit()
