"""The report for programs: a zip archive with CSV files, and plain values for JSON; nothing is cut off.

Each list has its own file because lists have different columns: a sheet that mixes them can neither be sorted nor
summed. The archive is one name to schedule, to mail and to keep. Every spreadsheet, `duckdb`, `pandas` and `unzip -p`
can read it. Times are ISO 8601 in UTC, units are in the names of columns, and empty means unknown or none.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from kquota_spark.formats.text.escape import csv_text
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.reports.parts.report_section import CsvFile, values_of
from kquota_spark.reports.sections import SECTIONS, AuditReport

_OLDEST = (1980, 1, 1, 0, 0, 0)
_ORDER = (
    "report.csv", "agreement.csv", "throttled.csv", "causes.csv", "slowed.csv", "buckets.csv", "quota_used.csv",
    "rates.csv", "usage.csv", "brokers.csv", "changes.csv", "unprotected.csv", "recommendations.csv", "raises.csv",
    "right_sizes.csv", "throttles.csv", "calibration.csv", "capacity.csv", "shadow.csv",
)  # fmt: skip
"""Files in the order of the archive; files of other sections are at its end."""
_CONFIDENCE = ("certain_percent", "lag_ms", "lines", "unreadable_lines", "late_requests", "gaps")


def csv_archive(report: AuditReport) -> bytes:
    """The zip archive; the same report gives the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in csv_files(report).items():
            archive.writestr(zipfile.ZipInfo(name, _OLDEST), text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def csv_files(report: AuditReport) -> dict[str, str]:
    """The texts of the files by name; a file without rows has its header, to distinguish it from a missing file."""
    found = {"report.csv": CsvFile(("name", "value"), _head(report))}
    for section in SECTIONS:
        found.update(section.files(report))
    places = {name: place for place, name in enumerate(_ORDER)}
    return {name: _csv(found[name]) for name in sorted(found, key=lambda name: places.get(name, len(places)))}


def _csv(file: CsvFile) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(file.columns)
    writer.writerows([_cell(value) for value in row] for row in file.rows)
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else str(value)


def _head(report: AuditReport) -> Iterator[tuple[Any, ...]]:
    head, found = report.head, report.confidence
    yield from (("cluster_id", head.cluster_id), ("tenant", head.tenant), ("version", head.version))
    for name, time_ms in (("from", head.from_ms), ("to", head.to_ms), ("made_at", head.made_at_ms)):
        yield name, iso_time(time_ms)
    yield from (("trust", found.trust.value), ("sources", ", ".join(found.sources)))
    yield from zip(_CONFIDENCE, values_of(found, _CONFIDENCE), strict=True)
    # Rows that were cut off before they came here.
    yield ("throttled_left_out", report.throttled_left_out)
    yield ("changes_left_out", report.changes_left_out)
    yield ("unprotected_left_out", report.unprotected_left_out)
    yield ("recommendations_left_out", report.recommendations_left_out)
    for of_type in report.talkers:
        yield (f"{of_type.quota_type}_total", of_type.total)
        yield (f"{of_type.quota_type}_other_clients", of_type.others)
        yield (f"{of_type.quota_type}_other_amount", of_type.others_amount)
    yield from (("reason", reason) for reason in found.reasons)
    yield from (("note", note) for note in report.notes)


def plain_report(report: AuditReport) -> dict[str, Any]:
    """Names and values of `AuditReport`; a number that JSON cannot contain is null, and broker ids are texts."""
    plain: dict[str, Any] = _plain(report)
    return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
