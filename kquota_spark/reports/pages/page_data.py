"""The report for programs: a zip archive with one CSV file per section, and plain values for JSON; nothing is cut off.

Each section has its own file because sections have different columns: a sheet that mixes them can neither be sorted nor
summed. The archive is one name to schedule, to mail and to keep. Every spreadsheet, `duckdb`, `pandas` and `unzip -p`
can read it. Times are ISO 8601 in UTC, units are in the names of columns, and empty means unknown or none.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from kquota_spark.formats.text.escape import csv_text
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.reports.scope.audit_report import AuditReport, BucketName, Change

_BUCKET = ("quota_type", "user", "client_id", "tags")
_OLDEST = (1980, 1, 1, 0, 0, 0)
_THROTTLED = (
    "limit_per_s", "throttled_ms", "throttled_requests", "throttled_seconds", "time_in_throttle_percent",
    "worst_broker_id", "episodes", "peak_quota_used_percent",
)  # fmt: skip
_PERIOD = ("limit_per_s", "peak_quota_used_percent", "throttled_ms", "throttled_requests")
_TALKER = (
    "user", "client_id", "quota_type", "amount", "share_percent", "requests", "mean_per_s", "peak_per_s",
    "observed_throttle_ms",
)  # fmt: skip
_SKEW = ("limit_per_s", "max_to_mean", "cluster_limit_per_s", "with_one_more_broker_per_s")
_CONFIDENCE = ("certain_percent", "lag_ms", "lines", "unreadable_lines", "late_requests", "gaps")
_UNPROTECTED = ("kind", "severity", "subject", "sentence", "advice")
_AGREEMENT = ("quota_type", "judged", "agreeing", "uncertain")
_CHANGE = ("at", "entity", "key", "before", "after", "what", "by")
_EFFECT = ("length_ms", "delay_before_ms", "delay_after_ms", "requests_before", "requests_after")
_RECOMMENDATION = (
    "entity", "key", "present", "recommended", "reason", "command", "title", "delay_ms", "cause", "confidence",
    "expected", "headroom", "least", "is_left",
)  # fmt: skip
_RAISES = ("broker_id", "quota_type", "raises", "least_more_per_s", "more_per_s", "headroom_per_s")
_PERCENTS = (50, 95, 100)
_PAIR = ("replay_ms", "brokers_ms", "is_certain", "seconds")
_CAPACITY = ("broker_id", "io_threads", "network_threads", "percent", "used_percent")

Rows = Iterable[tuple[Any, ...]]


def csv_archive(report: AuditReport) -> bytes:
    """The zip archive; the same report gives the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in csv_files(report).items():
            archive.writestr(zipfile.ZipInfo(name, _OLDEST), text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def csv_files(report: AuditReport) -> dict[str, str]:
    """The texts of the files by name; a file without rows has its header, to distinguish it from a missing file."""
    return {
        "report.csv": _csv(("name", "value"), _head(report)),
        "agreement.csv": _plain_csv(_AGREEMENT, report.confidence.agreement),
        "throttled.csv": _csv(
            (*_BUCKET, *_THROTTLED, "clients"),
            (
                (*_of(one.bucket), *_values(one, _THROTTLED), ", ".join(one.clients))
                for one in report.throttled
            ),
        ),
        "buckets.csv": _csv(
            (*_BUCKET, *_PERIOD, "brokers"),
            (
                (*_of(one.bucket), *_values(one, _PERIOD), " ".join(map(str, one.brokers)))
                for one in report.buckets
            ),
        ),
        "quota_used.csv": _csv(
            (*_BUCKET, "slot", "slot_ms", "quota_used_percent", "is_certain"), _quota_used(report)
        ),
        "rates.csv": _csv(
            (*_BUCKET, "broker_id", "slot", "slot_ms", "rate_per_s", "limit_per_s", "throttled_ms"),
            _rates(report),
        ),
        "usage.csv": _plain_csv(_TALKER, [one for of_type in report.talkers for one in of_type.talkers]),
        "brokers.csv": _csv((*_BUCKET, *_SKEW, "broker_id", "used_per_s", "throttled_ms"), _brokers(report)),
        "changes.csv": _csv((*_CHANGE, *_EFFECT), map(_change, report.changes)),
        "unprotected.csv": _plain_csv(_UNPROTECTED, report.unprotected),
        "recommendations.csv": _plain_csv(_RECOMMENDATION, report.recommendations),
        "raises.csv": _plain_csv(_RAISES, report.raises),
        "throttles.csv": _csv(
            ("user", "requests", "throttled_ms", *(f"p{percent}_ms" for percent in _PERCENTS)),
            (
                (one.user, one.requests, one.throttled_ms, *(one.percentiles_ms[each] for each in _PERCENTS))
                for one in report.throttle_spreads
            ),
        ),
        "calibration.csv": _plain_csv(_PAIR, report.throttle_pairs),
        "capacity.csv": _plain_csv(_CAPACITY, report.capacity),
    }


def _change(one: Change) -> tuple[Any, ...]:
    effect = _values(one.effect, _EFFECT) if one.effect else (None,) * len(_EFFECT)
    return (iso_time(one.at_ms), *_values(one, _CHANGE[1:]), *effect)


def _plain_csv(names: tuple[str, ...], rows: Iterable[object]) -> str:
    return _csv(names, (_values(one, names) for one in rows))


def _csv(columns: tuple[str, ...], rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else str(value)


def _values(one: object, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in names)


def _of(bucket: BucketName) -> tuple[str, ...]:
    return bucket.quota_type, bucket.user, bucket.client_id, bucket.tags


def _head(report: AuditReport) -> Iterator[tuple[Any, ...]]:
    head, found = report.head, report.confidence
    yield from (("cluster_id", head.cluster_id), ("tenant", head.tenant), ("version", head.version))
    for name, time_ms in (("from", head.from_ms), ("to", head.to_ms), ("made_at", head.made_at_ms)):
        yield name, iso_time(time_ms)
    yield from (("trust", found.trust.value), ("sources", ", ".join(found.sources)))
    yield from zip(_CONFIDENCE, _values(found, _CONFIDENCE), strict=True)
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


def _quota_used(report: AuditReport) -> Rows:
    for heat in report.heat:
        for bucket, *rows in zip(heat.buckets, heat.quota_used_percent, heat.uncertain_percent, strict=True):
            for slot, certain, uncertain in zip(heat.slots, *rows, strict=True):
                percent = uncertain if certain is None else certain
                if percent is not None:
                    yield (*_of(bucket), iso_time(slot), heat.slot_ms, percent, certain is not None)


def _rates(report: AuditReport) -> Rows:
    for line in report.lines:
        of_slots = zip(line.slots, line.rate_per_s, line.limit_per_s, line.throttled_ms, strict=True)
        for slot, rate, limit, throttled_ms in of_slots:
            yield (*_of(line.bucket), line.broker_id, iso_time(slot), line.slot_ms, rate, limit, throttled_ms)


def _brokers(report: AuditReport) -> Rows:
    for one in report.skew:
        for broker_id, rate in sorted(one.used_per_s.items()):
            yield (*_of(one.bucket), *_values(one, _SKEW), broker_id, rate, one.throttled_ms.get(broker_id))


def plain_report(report: AuditReport) -> dict[str, Any]:
    """Names and values of `AuditReport`; a number that JSON cannot contain is null, and broker ids are texts."""
    return {one.name: _plain(getattr(report, one.name)) for one in fields(report)}


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
