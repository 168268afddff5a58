"""How a section of the report is made: from the tables, on a page, and as files for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.reports.parts.page_parts import Section
from kquota_spark.reports.scope.report_scope import Scope
from kquota_spark.reports.scope.shared_rows import BucketName

if TYPE_CHECKING:
    from kquota_spark.reports.sections import AuditReport

BUCKET_COLUMNS = ("quota_type", "user", "client_id", "tags")


class CsvFile(NamedTuple):
    """A file of the archive: its columns, and rows of raw values in their order."""

    columns: tuple[str, ...]
    rows: Iterable[tuple[Any, ...]]


def _always(_: AuditReport) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One section: each function takes what is there and returns what the section adds."""

    gather: Callable[[Scope], Mapping[str, Any]]
    """Its fields of `AuditReport` by name."""
    draw: Callable[[AuditReport], Section]
    files: Callable[[AuditReport], Mapping[str, CsvFile]]
    """Its files of the archive by name."""
    is_shown: Callable[[AuditReport], bool] = _always
    """Whether a page has it."""


def file_of(columns: tuple[str, ...], rows: Iterable[object]) -> CsvFile:
    """A file with one row for each object; its columns are attributes of the object."""
    return CsvFile(columns, (values_of(one, columns) for one in rows))


def values_of(one: object, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The attributes of an object with these names."""
    return tuple(getattr(one, name) for name in names)


def names_of(bucket: BucketName) -> tuple[str, ...]:
    """The values of `BUCKET_COLUMNS`."""
    return values_of(bucket, BUCKET_COLUMNS)
