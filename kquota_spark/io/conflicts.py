"""Commits that lost a race: done again from a fresh snapshot, a few times."""

from __future__ import annotations

from collections.abc import Callable

from delta.exceptions import DeltaConcurrentModificationException

from kquota_spark.errors import UserError

_ATTEMPTS = 5


def retried(commit: Callable[[], None]) -> None:
    """Run a Delta write that replaces rows; it reads what it replaces anew each time.

    Appends never conflict. What does: the fold into `violations`, a restatement and a compaction that touch the
    same files.

    Raises:
        UserError: another writer was faster five times in a row.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            commit()
        except DeltaConcurrentModificationException as error:
            if attempt == _ATTEMPTS:
                raise UserError(
                    "another writer changed the same rows of a table five times in a row: is a second kquota maintain "
                    "or restate running?"
                ) from error
        else:
            return
