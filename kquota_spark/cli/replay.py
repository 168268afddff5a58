"""`kquota replay`: the broker's verdicts from log files alone, compared with the throttle it logged."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from kquota_spark.cli.escape import json_text, terminal_text
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_file import read_quota_file
from kquota_spark.io.offline import BucketKey, Replay, broker_id_of, replay_files
from kquota_spark.model.agreement import Agreement
from kquota_spark.model.diagnosis import cause_of
from kquota_spark.model.govern import RuleGovernor
from kquota_spark.model.quota_types import BANDWIDTH
from kquota_spark.model.replay import Verdict
from kquota_spark.model.rules import RuleBook, stretches
from kquota_spark.model.sampled_rate import RateConfig, RingVariant


def add_commands(commands: Any) -> None:
    """Add `replay`."""
    parser = commands.add_parser(
        "replay", help="judge request-log files without Spark, and compare with the broker"
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="request log, plain or .gz")
    parser.add_argument(
        "--quotas", required=True, type=Path, metavar="FILE", help="quotas.yaml with validity"
    )
    parser.add_argument(
        "--broker", type=int, metavar="ID", help="broker of the logs, if no broker-<id> in the name"
    )
    parser.add_argument("--window-num", type=int, default=11, help="quota.window.num of the broker (11)")
    parser.add_argument("--window-size-seconds", type=int, default=1, help="quota.window.size.seconds (1)")
    parser.add_argument(
        "--broker-version", default="3.9", help="3.7 and older keep an older sample ring (3.9)"
    )
    parser.add_argument("--log-time-zone", default="UTC", help="time zone of the broker's log (UTC)")
    parser.add_argument(
        "--apply-lag-ms", type=int, default=0, help="brokers act on an edit this much later (0)"
    )
    parser.add_argument("--show", choices=["wrong"], help="list every verdict that differs, with its cause")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    config = _rate_config(options)
    _check_time_zone(options.log_time_zone)
    changes = read_quota_file(options.quotas)
    book = RuleBook(stretches(changes, apply_lag_ms=options.apply_lag_ms))
    files = [(broker_id_of(path, options.broker), path) for path in options.logs]
    found = replay_files(files, RuleGovernor(book), config, options.log_time_zone)
    summary = _summary(found)
    wrong = list(_wrong(found, config)) if options.show == "wrong" else None
    if options.output == "json":
        extra = {} if wrong is None else {"wrong": wrong}
        print(json_text({"command": "kquota replay", "version": 1, **summary, **extra}))
    else:
        _print_summary(summary)
        for row in wrong or ():
            print(_wrong_line(row))
    return 0


def _rate_config(options: argparse.Namespace) -> RateConfig:
    if options.window_num < 1 or options.window_size_seconds < 1:
        raise UserError("--window-num and --window-size-seconds: expected 1 or more")
    try:
        variant = RingVariant.of_version(options.broker_version)
    except ValueError as error:
        raise UserError(
            f"--broker-version: {options.broker_version!r}, expected e.g. 3.9 or 3.7.2"
        ) from error
    return RateConfig(options.window_num, options.window_size_seconds * 1_000, variant)


def _check_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UserError(
            f"--log-time-zone: {name!r} is no time zone, expected a name such as UTC or Europe/Berlin"
        ) from error


def _summary(found: Replay) -> dict[str, Any]:
    whole = Agreement()
    by_type = {quota_type: Agreement() for quota_type in BANDWIDTH}
    for key, verdicts in found.verdicts.items():
        whole.add_all(verdicts)
        by_type[key.quota_type].add_all(verdicts)
    return {
        "lines": found.lines,
        "unreadable": sum(found.unreadable.values()),
        "unreadable_reasons": dict(found.unreadable),
        "counted": found.counted,
        "duplicates": found.duplicates,
        "decisions": sum(map(len, found.decisions.values())),
        **whole.as_dict(),
        "by_type": {quota_type.value: tally.as_dict() for quota_type, tally in by_type.items()},
    }


def _wrong(found: Replay, config: RateConfig) -> Iterable[dict[str, Any]]:
    for key, verdicts in found.verdicts.items():
        for index, verdict in enumerate(verdicts):
            if verdict.is_wrong:
                yield _wrong_row(key, verdict, cause_of(verdicts, index, config))


def _wrong_row(key: BucketKey, verdict: Verdict, cause: str) -> dict[str, Any]:
    limit = verdict.governing.limit_per_s
    moment = dt.datetime.fromtimestamp(verdict.point.record_time_ms / 1_000, dt.UTC)
    return {
        "record_time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "broker_id": key.broker_id,
        "quota_type": key.quota_type.value,
        "bucket_user": key.bucket.user,
        "bucket_client_id": key.bucket.client_id,
        "limit_per_s": limit,
        "rate_per_s": round(verdict.rate_per_s, 1),
        "quota_used_percent": round(100.0 * verdict.rate_per_s / limit, 3) if limit else None,
        "throttle_ms": verdict.throttle_ms,
        "observed_throttle_ms": verdict.point.observed_throttle_ms,
        "is_certain": verdict.cause is None,
        "cause": cause,
    }


def _print_summary(summary: dict[str, Any]) -> None:
    print(f"{summary['lines']:,} lines, {summary['unreadable']:,} unreadable, {summary['counted']:,} counted")
    print(f"{'':22}{'all':>12}{'produce':>12}{'fetch':>12}")
    columns = [summary, summary["by_type"]["produce"], summary["by_type"]["fetch"]]
    for name, value in summary["by_type"]["produce"].items():
        if isinstance(value, int):
            print(f"{name:22}" + "".join(f"{column[name]:>12,}" for column in columns))
    for part in ("median", "p90", "p99", "max"):
        sizes = [column["throttle_error_ms"][part] for column in columns]
        shown = "".join(f"{'-' if size is None else format(size, ','):>12}" for size in sizes)
        print(f"{'throttle error ' + part:18} ms {shown}".rstrip())


def _wrong_line(row: dict[str, Any]) -> str:
    bucket = " / ".join(terminal_text(row[name]) for name in ("bucket_user", "bucket_client_id") if row[name])
    sure = "certain" if row["is_certain"] else "uncertain"
    return (
        f"{row['record_time']} broker {row['broker_id']} {row['quota_type']} {bucket}: "
        f"{row['quota_used_percent']} % of quota, ours {row['throttle_ms']} ms, broker "
        f"{row['observed_throttle_ms']} ms ({sure}): {row['cause']}"
    )
