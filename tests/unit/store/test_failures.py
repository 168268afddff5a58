"""Errors of Delta are errors for users, and a commit that came second is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from kquota_spark.errors import UserError
from kquota_spark.store.delta.errors import MissingTableError, OvertakenError, committed, delta_errors


def test_a_table_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with (
        pytest.raises(MissingTableError, match=r"^usage cannot be read: "),
        delta_errors("usage cannot be read"),
    ):
        DeltaTable(str(tmp_path / "usage"))


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (CommitFailedError("late"), OvertakenError),
        (DeltaError("damaged"), UserError),
        (OSError("disk"), UserError),
        (ValueError("no number"), UserError),
    ],
)
def test_each_kind_of_error_keeps_its_words(error: Exception, ours: type[UserError]) -> None:
    with pytest.raises(UserError) as raised, delta_errors("table usage", ValueError):
        raise error
    assert (type(raised.value), str(raised.value)) == (ours, f"table usage: {error}")


def test_errors_of_others_are_left_as_they_are() -> None:
    with pytest.raises(ValueError, match=r"^no number$"), delta_errors("table usage"):
        raise ValueError("no number")


def test_a_commit_that_was_overtaken_is_made_again_and_its_last_failure_is_raised() -> None:
    made: list[int] = []

    def commit(failures: int) -> int:
        made.append(failures)
        if len(made) <= failures:
            raise CommitFailedError
        return len(made)

    assert committed(lambda: commit(2), attempts=3) == 3
    made.clear()
    with pytest.raises(CommitFailedError):
        committed(lambda: commit(3), attempts=3)
    assert made == [3, 3, 3]
