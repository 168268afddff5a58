"""`kquota replay`: the broker's verdicts from log files alone, compared with the throttle that it logged."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from kquota_spark.cli.check.replay_results import (
    bucket_rows,
    print_summary,
    request_rows,
    show_buckets,
    show_requests,
    summary_of,
    wrong_line,
    wrong_rows,
)
from kquota_spark.cli.check.window_comparison import compared, print_comparison, window_shape
from kquota_spark.cli.chosen.quota_source import (
    add_broker_options,
    add_source_options,
    governor_of,
    leader_notes,
    read_quotas,
    settings_with_broker_of,
    source_of,
)
from kquota_spark.cli.options import add_form_option, limit_of, whole_number
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import print_answer
from kquota_spark.config.governor import mutation_config, rate_config
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.findings.ring_check import likely_variant
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.replay.files import Replay, broker_id_of, replay_files
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.quotas.sources import QuotaHistory

COMMANDS = {
    "replay": (
        "answers",
        "judge request-log files without Spark, and compare with the broker",
        "kquota replay --sample --by bucket",
        "kquota replay --quotas quotas.yaml --broker 1 kafka-request.log",
    ),
}


def add_commands(commands: Any) -> None:
    """Add `replay`."""
    parser = commands.add_parser("replay")
    parser.add_argument("logs", nargs="*", type=Path, metavar="LOG", help="request log, plain or .gz")
    parser.add_argument(
        "--sample",
        action="store_true",
        help="instead of LOG: the bundled log of a Kafka 4.1.1 broker, with its quotas",
    )
    parser.add_argument(
        "--broker", type=whole_number, metavar="ID", help="broker of the logs, if no broker-<id> in the name"
    )
    parser.add_argument("--log-time-zone", metavar="TZ", help="time zone of the broker's log (UTC)")
    parser.add_argument(
        "--apply-lag-ms",
        type=whole_number,
        default=0,
        metavar="MS",
        help="with --quotas: brokers act on an edit this much later (0)",
    )
    parser.add_argument("--show", choices=["wrong"], help="list every verdict that differs, with its cause")
    parser.add_argument("--by", choices=["bucket", "request"], help="also a line for each of these")
    parser.add_argument(
        "--compare-window",
        type=window_shape,
        metavar="NUMxSECONDS",
        help="what another quota.window.num and .size.seconds would have let through, e.g. 30x1",
    )
    add_form_option(parser, ("table", "json", "yaml"))
    parser.add_argument(
        "--limit",
        type=whole_number,
        metavar="N",
        help="with --by: at most N lines, 0 for all (default 50 in a table, all otherwise)",
    )
    add_source_options(parser)
    add_broker_options(parser)
    parser.set_defaults(run=run_replay, usage=parser.error)


def run_replay(options: argparse.Namespace) -> int:
    """Replay the logs and print the requested answer."""
    if options.sample:
        _refuse_beside_sample(options)
        with as_file(files("kquota_spark").joinpath("samples")) as folder:
            return _replay(argparse.Namespace(**vars(options) | _of_sample(folder)))
    if not options.logs:
        options.usage("name a LOG, or add --sample to replay the bundled one")
    return _replay(options)


def _refuse_beside_sample(options: argparse.Namespace) -> None:
    sources = ("quotas", "zookeeper", "bootstrap_server", "context", "tables", "config")
    given = [f"--{name.replace('_', '-')}" for name in sources if getattr(options, name) is not None]
    refused = [*("LOG" for _ in options.logs[:1]), *given]
    if refused:
        raise UserError(f"--sample: not with {' and '.join(refused)}, the sample has its own log and quotas")


def _of_sample(folder: Path) -> dict[str, Any]:
    """The options for the sample. Settings of the working directory are not used: they are of another cluster."""
    return {
        "logs": sorted(folder.glob("*.gz")), "quotas": folder / "quotas.yaml", "config": folder / "kquota.yaml"
    }  # fmt: skip


def _require_logs(paths: Sequence[Path]) -> None:
    """Check that each log exists, before its name is searched for a broker id: a mistyped name has none either.

    Raises:
        UserError: a log does not exist.
    """
    for path in paths:
        if not os.path.lexists(path):
            raise UserError(f"{terminal_text(str(path))}: cannot be read: No such file or directory")


def _require_requests(found: Replay, paths: Sequence[Path]) -> None:
    """Check that logs with lines are request logs: of other files the answer would be a table of zeros.

    Raises:
        UserError: no line could be read, and none of them is known to be of a client.
    """
    if found.lines and found.lines == sum(found.unreadable.values()) and not found.verdicts:
        reasons = "; ".join(f"{count:,} x {reason}" for reason, count in found.unreadable.items())
        names = terminal_text(", ".join(map(str, paths)))
        raise UserError(f"{names}: no request in {found.lines:,} lines, expected a request log ({reasons})")


def _replay(options: argparse.Namespace) -> int:
    if options.apply_lag_ms and options.quotas is None:
        raise UserError("--apply-lag-ms: only with --quotas")
    settings = settings_with_broker_of(options)
    config = rate_config(settings)
    time_zone = options.log_time_zone or settings.broker.log_time_zone
    _check_time_zone(time_zone)
    if options.quotas is None:
        _require_logs(options.logs)  # no cluster is asked for the quotas of a log that is not there
    history = read_quotas(settings, source_of(options), apply_lag_ms=options.apply_lag_ms)
    _require_logs(options.logs)
    logs = [(broker_id_of(path, options.broker), path) for path in options.logs]
    with governor_of(settings, history) as governor:
        of_brokers = {} if options.log_time_zone else settings.broker.zones_by_broker
        found = replay_files(logs, governor, config, time_zone, of_brokers, mutation_config(settings))
    if options.output == "table":
        _require_requests(found, options.logs)
    answer: dict[str, Any] = {
        **summary_of(found),
        "source": history.origin, "window": config.name, "notes": list(_notes(settings, history, found)),
    }  # fmt: skip
    ring = likely_variant(found.governed_seconds.values(), config)
    answer["ring"] = ring and {**asdict(ring), "variant": ring.variant.value, "message": ring.message}
    if options.show == "wrong":
        answer["wrong"] = list(wrong_rows(found, config))
    has_more = False
    if options.by:
        rows = bucket_rows(found) if options.by == "bucket" else request_rows(found)
        answer[f"{options.by}s"], has_more = _first(rows, limit_of(options))
    if options.compare_window:
        answer["compare_window"] = compared(found, config, options.compare_window)
    if options.output != "table":
        print_answer("kquota replay", answer, options.output)
        _require_requests(found, options.logs)  # programs get the counts by reason as well
    else:
        _print(answer, has_more=has_more)
    return 0


def _first(rows: Iterable[dict[str, Any]], limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, and whether there are more."""
    if limit is None:
        return list(rows), False
    found = list(islice(rows, limit + 1))
    return found[:limit], len(found) > limit


def _print(answer: dict[str, Any], *, has_more: bool) -> None:
    print_summary(answer)
    if answer["ring"]:
        Page().paragraph("ring:", f"{answer['ring']['message']}: see --broker-version", indent=6)
    for note in answer["notes"]:
        Page().paragraph("note:", terminal_text(note), indent=6)
    for row in answer.get("wrong", ()):
        moment, rest = wrong_line(row)
        Page().paragraph(moment, rest, indent=len(moment) + 1)
    if "buckets" in answer:
        show_buckets(answer["buckets"], has_more=has_more)
    if "requests" in answer:
        show_requests(answer["requests"], has_more=has_more)
    if "compare_window" in answer:
        print_comparison(answer["compare_window"])


def _check_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UserError(
            f"--log-time-zone: {name!r} is no time zone, expected a name such as UTC or Europe/Berlin"
        ) from error


def _notes(settings: Settings, history: QuotaHistory, found: Replay) -> Iterator[str]:
    """Notes about the limits of the quotas that were replayed."""
    if not history.has_history:
        yield f"{history.origin} has only the quotas of now: replayed as if they had always been in force"
    newest_ms = max((verdicts[-1].point.record_time_ms for verdicts in found.verdicts.values()), default=0)
    if history.known_through_ms is not None and newest_ms > history.known_through_ms:
        yield f"{history.origin}: edits after {utc_text(history.known_through_ms)} are not known"
    if settings.quotas.callback:
        yield from leader_notes(history, newest_ms)
    if history.problems:
        count = len(history.problems)
        yield f"{count} quota nodes are not read as quotas, the first: {history.problems[0]}"
