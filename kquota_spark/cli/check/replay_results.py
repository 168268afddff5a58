"""The verdicts of a replay as data and tables: counts, and rows per bucket, per request or per wrong verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from kquota_spark.cli.text.columns import column
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Colour, Report, Row, Shown, finite, show
from kquota_spark.findings.agreement_causes import cause_of
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    or_dash,
    person_count,
    person_ms,
    person_pair_ms,
    person_percent,
    rate_text,
    type_text,
)
from kquota_spark.model.measure.points import CONTROLLER_ID
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.replay.agreement import Agreement
from kquota_spark.model.replay.decision import Decision
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.replay.files import BucketKey, Replay

_COMMAND = "kquota replay"
_SIDES = "by replay / by brokers"
_MOST_REASONS = 5


def summary_of(found: Replay) -> dict[str, Any]:
    """Counts of lines and verdicts, for JSON."""
    whole = Agreement()
    by_type = {quota_type: Agreement() for quota_type in QuotaType}
    for key, verdicts in found.verdicts.items():
        whole.add_all(verdicts)
        by_type[key.quota_type].add_all(verdicts)
    return {
        "lines": found.lines,
        "unreadable": sum(found.unreadable.values()),
        "unreadable_reasons": dict(found.unreadable),
        "counted": found.counted,
        "duplicates": found.duplicates,
        "verdicts": sum(map(len, found.verdicts.values())),
        "decisions": sum(map(len, found.decisions.values())),
        **whole.as_dict(),
        "by_type": {quota_type.value: tally.as_dict() for quota_type, tally in by_type.items()},
    }


def bucket_rows(found: Replay) -> list[dict[str, Any]]:
    """One row per bucket. The longest throttled by the broker come first, then the largest amounts."""
    rows = [_bucket_row(key, verdicts, found.decisions[key]) for key, verdicts in found.verdicts.items()]
    return sorted(rows, key=lambda row: (-row["delay_ms"], -row["amount"]))


def _bucket_row(key: BucketKey, verdicts: Sequence[Verdict], decisions: Sequence[Decision]) -> dict[str, Any]:
    tally = Agreement()
    tally.add_all(verdicts)
    throttles_ms = [verdict.throttle_ms for verdict in verdicts]
    observed_ms = [verdict.point.observed_throttle_ms for verdict in verdicts]
    last = decisions[-1]
    return {
        **bucket_columns(key),
        "level": last.level,
        "rule": last.rule,
        "limit_per_s": finite(verdicts[-1].governing.limit_per_s),
        "requests": len(verdicts),
        "amount": sum(verdict.point.amount for verdict in verdicts),
        "throttled_requests": sum(throttle_ms > 0 for throttle_ms in observed_ms),
        "throttled_requests_by_replay": sum(throttle_ms > 0 for throttle_ms in throttles_ms),
        "delay_ms": sum(observed_ms),
        "delay_by_replay_ms": sum(throttles_ms),
        "wrong": tally.false_positive + tally.false_negative + tally.uncertain_wrong,
        "uncertain": tally.uncertain,
    }


def request_rows(found: Replay) -> Iterator[dict[str, Any]]:
    """One row per request, in order of time."""
    entries = [(key, verdict) for key, verdicts in found.verdicts.items() for verdict in verdicts]
    entries.sort(key=lambda entry: entry[1].point.record_time_ms)
    for key, verdict in entries:
        yield _verdict_columns(key, verdict) | {
            "amount": verdict.point.amount,
            "window_ms": verdict.window_ms,
            "outcome": verdict.outcome.value,
            "cause": None if verdict.cause is None else verdict.cause.value,
        }


def wrong_rows(found: Replay, config: RateConfig) -> Iterator[dict[str, Any]]:
    """The verdicts that differ from the broker's, each with its likely cause."""
    for key, verdicts in found.verdicts.items():
        for index, verdict in enumerate(verdicts):
            if verdict.is_wrong:
                sure = {"is_certain": verdict.cause is None, "cause": _cause(key, verdicts, index, config)}
                yield _verdict_columns(key, verdict) | sure


def _cause(key: BucketKey, verdicts: Sequence[Verdict], index: int, config: RateConfig) -> str:
    """The likely cause of a wrong verdict.

    Noise on the times cannot explain verdicts on thread time and partitions, which are not in the log.
    """
    if key.quota_type in BANDWIDTH:
        return cause_of(verdicts, index, config)
    found = verdicts[index].cause
    return "not explained: check window settings and quotas" if found is None else found.value


def wrong_line(row: dict[str, Any]) -> tuple[str, str]:
    """A wrong verdict for people: its time, and its text."""
    sure = "certain" if row["is_certain"] else "uncertain"
    return row["record_time"], (
        f"broker {row['broker_id']} {row['quota_type']} "
        f"{terminal_text(bucket_name(row))}: {row['quota_used_percent']} % of quota, "
        f"{row['throttle_by_replay_ms']} ms by replay, {row['throttle_ms']} ms by the broker ({sure}): {row['cause']}"
    )


def bucket_name(row: Row) -> str:
    """`alice / etl`, `alice`, `etl`, or a callback's `group=pay`; not escaped for the terminal."""
    parts = [row[name] for name in ("bucket_user", "bucket_client_id") if row[name]]
    return (
        ", ".join(f"{name}={value}" for name, value in row["bucket_tags"].items())
        or " / ".join(parts)
        or '""'
    )


def bucket_columns(key: BucketKey) -> dict[str, Any]:
    """The columns that identify a bucket."""
    return {
        "broker_id": key.broker_id,
        "quota_type": key.quota_type.value,
        "bucket_user": key.bucket.user,
        "bucket_client_id": key.bucket.client_id,
        "bucket_tags": dict(key.bucket.custom_tags),
    }


def _verdict_columns(key: BucketKey, verdict: Verdict) -> dict[str, Any]:
    limit = finite(verdict.governing.limit_per_s)
    moment = datetime.fromtimestamp(verdict.point.record_time_ms / 1_000, UTC)
    return {
        "record_time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **bucket_columns(key),
        "limit_per_s": limit,
        "rate_per_s": round(verdict.rate_per_s, 1 if key.quota_type in BANDWIDTH else 3),
        "quota_used_percent": round(100.0 * verdict.rate_per_s / limit, 3) if limit else None,
        "throttle_ms": verdict.point.observed_throttle_ms,
        "throttle_by_replay_ms": verdict.throttle_ms,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print the counts of `summary_of` for people."""
    print(f"{summary['lines']:,} lines, {summary['unreadable']:,} unreadable, {summary['counted']:,} counted")
    reasons = sorted(summary["unreadable_reasons"].items(), key=lambda item: (-item[1], item[0]))
    for reason, lines in reasons[:_MOST_REASONS]:
        Page().paragraph("unreadable:", f"{lines:,} x {reason}", indent=12)
    columns = {"all": summary, **{type_text(name): tally for name, tally in summary["by_type"].items()}}
    counts = [name for name, value in summary["by_type"]["produce"].items() if isinstance(value, int)]
    rows = [
        {
            "name": name.replace("_by_broker", " by brokers")
            .replace("_by_model", " by replay")
            .replace("_", " ")
        }
        | {title: person_count(column[name]) for title, column in columns.items()}
        for name in counts
    ]
    rows += [
        {"name": f"throttle error {part}"}
        | {title: or_dash(column["throttle_error_ms"][part], person_ms) for title, column in columns.items()}
        for part in ("median", "p90", "p99", "max")
    ]
    of_types = (Shown(title, itemgetter(title)) for title in columns)
    shown = (Shown("", itemgetter("name"), is_text=True, keep=24), *of_types)
    show(Report(_COMMAND, (), rows, shown), "table")


def show_buckets(rows: Sequence[Row], *, has_more: bool) -> None:
    """Print a table of buckets."""
    shown = (
        *place_columns(rows),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=3),
        Shown("requests", lambda row: person_count(row["requests"]), rank=4),
        Shown("amount", lambda row: amount_text(row["quota_type"], row["amount"]), rank=5),
        Shown("throttled requests", _throttled_requests),
        Shown("total delay", lambda row: person_pair_ms(row["delay_by_replay_ms"], row["delay_ms"])),
        Shown("wrong", lambda row: person_count(row["wrong"])),
        Shown("unsure", lambda row: person_count(row["uncertain"])),
    )
    footer = f"throttled requests, total delay: {_SIDES}; limit: the last in force{_more(has_more)}"
    show(Report(_COMMAND, (), rows, shown, footer=footer, colour=_bucket_colour), "table")


def show_requests(rows: Sequence[Row], *, has_more: bool) -> None:
    """Print a table of requests."""
    shown = (
        Shown("record time", lambda row: row["record_time"][11:-1]),
        *place_columns(rows),
        Shown("amount", lambda row: amount_text(row["quota_type"], row["amount"]), rank=5),
        Shown("limit", lambda row: rate_text(row["quota_type"], row["limit_per_s"]), rank=3),
        Shown("used", lambda row: person_percent(row["quota_used_percent"]), rank=4),
        Shown("throttle", lambda row: person_pair_ms(row["throttle_by_replay_ms"], row["throttle_ms"])),
        Shown("verdict", lambda row: row["outcome"], is_text=True, keep=14),
    )
    footer = f"times in UTC; throttle: {_SIDES}{_more(has_more)}"
    show(Report(_COMMAND, (), rows, shown, footer=footer, colour=_request_colour), "table")


def place_columns(rows: Sequence[Row]) -> tuple[Shown, ...]:
    """The columns broker (if there are several), type and bucket."""
    columns = (
        column("quota_type"),
        Shown("bucket", bucket_name, is_text=True, keep=12),
    )
    if len({row["broker_id"] for row in rows} - {CONTROLLER_ID}) < 2:
        return columns
    return (column("broker_id"), *columns)


def _more(has_more: bool) -> str:
    return "\nthere are more: --limit 0 shows all" if has_more else ""


def _throttled_requests(row: Row) -> str:
    return f"{row['throttled_requests_by_replay']:,} / {row['throttled_requests']:,}"


def _bucket_colour(row: Row) -> Colour | None:
    return Colour.RED if row["wrong"] else None


def _request_colour(row: Row) -> Colour | None:
    if row["outcome"].startswith("false"):
        return Colour.RED
    return Colour.YELLOW if row["outcome"] == "uncertain" else None
