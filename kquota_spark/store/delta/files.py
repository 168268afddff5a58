"""The files of a table: written ones, replaced ones, and the list of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class WrittenFile(Protocol):
    """A written file of rows of one date, with the fields of Delta's `add` action."""

    @property
    def path(self) -> str:
        """Relative to the table."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def event_date(self) -> str:
        """ISO date of its rows."""

    @property
    def stats(self) -> str:
        """Statistics of its columns: JSON in Delta's form."""

    @property
    def written_ms(self) -> int:
        """When it was written, epoch ms."""


class ReplacedFile(NamedTuple):
    """A file that a commit takes out of the table; its rows are in other files."""

    path: str
    size: int
    event_date: str


class FileList:
    """The files of a snapshot, one per row.

    Columns: path, size_bytes, modification_time (epoch ms), num_records, `partition.COLUMN`, and statistics as
    `min.COLUMN`, `max.COLUMN` and `null_count.COLUMN`. Columns that no file has are missing.
    """

    __slots__ = ("_actions",)

    def __init__(self, actions: Any) -> None:
        self._actions = actions

    @property
    def names(self) -> Sequence[str]:
        """The names of its columns."""
        found: Sequence[str] = self._actions.schema.names
        return found

    def column(self, name: str) -> list[Any]:
        """The values of a column."""
        found: list[Any] = self._actions.column(name).to_pylist()
        return found

    def as_arrow(self) -> pa.Table:
        """All columns."""
        import pyarrow as pa

        return pa.table(self._actions)
