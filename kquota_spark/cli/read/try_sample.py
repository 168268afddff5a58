"""`kquota try`: tables and a report of a real broker's bundled log, in seconds, without Kafka, Spark or Java."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.options import add_form_option
from kquota_spark.cli.text.page import Page, print_line
from kquota_spark.cli.text.render import print_answer
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import bucket_text, person_ms
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.config.settings import Settings
    from kquota_spark.reports.scope.period import Period
    from kquota_spark.reports.sections import AuditReport

COMMANDS = {
    "try": (
        "answers",
        "a recorded broker: its tables and a report, in ten seconds, without Kafka and Spark",
        "kquota try",
        "kquota try --folder /tmp/kquota-try",
    ),
}

FOLDER = Path(".kquota") / "try"
_ADVICE = "give another --folder"
_BROKER_ID = 1
_FIRST_LINE = "cluster_id: sample"
_SETTINGS = """\
{first_line}
# Written by `kquota try`: a recorded broker of Kafka 4.1.1.
tables: {tables}
quotas: {{source: file, file: {quotas}}}
broker: {{version: "4.1", log_time_zone: UTC}}
"""
_PLACES = {"tables": "tables", "quotas": "quotas.yaml"}
"""Files of the folder that the settings name."""
_COUNTS = """
select (select count(*) from requests), count(distinct (quota_type, bucket_user, bucket_client_id)),
       epoch_ms(min(second)), epoch_ms(max(second)) from decisions
"""
_NEXT = (
    "throttled",
    "top --once",
    "timeline --user alice --client-id etl",
    "explain --user alice --client-id etl",
    "findings",
)


class _Sample(NamedTuple):
    """Counts and the period of the tables."""

    lines: int
    buckets: int
    period: Period


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `try`."""
    parser = subparsers.add_parser("try")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, metavar="DIR",
        help=f"where tables, settings and report.html are written (default {FOLDER})",
    )  # fmt: skip
    add_form_option(parser, ("table", "json", "yaml"))
    parser.set_defaults(run=run_try)


def run_try(options: argparse.Namespace) -> int:
    """Write the tables once and the report every time, and print the next commands to try.

    Raises:
        UserError: the folder contains other files, or cannot be written.
    """
    from kquota_spark.process.replaced_file import replace_file
    from kquota_spark.reports.pages.gathering import gather_report
    from kquota_spark.reports.pages.page_html import html_page

    folder: Path = options.folder
    with _only_one(folder):
        settings = _settings(folder.absolute())
        if not (folder / "tables").exists():
            print("writing the tables of the bundled log", file=sys.stderr)
            _write_tables(settings, folder)
    sample = _counted(settings)
    report = gather_report(settings, sample.period, made_at_ms=now_ms())
    replace_file(folder / "report.html", html_page(report).encode(), advice=_ADVICE)
    answer = _answer(folder, sample, report)
    if options.output == "table":
        _print(folder, answer)
    else:
        print_answer("kquota try", answer, options.output)
    return 0


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Create the folder, and hold its lock: another `kquota try` in it waits.

    Raises:
        UserError: the folder cannot be created or locked.
    """
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _not_written(folder, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another kquota try in {terminal_text(str(folder))}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _not_written(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder} cannot be written: {error.strerror}: {_ADVICE}")


def _settings(folder: Path) -> Settings:
    """The settings of the folder; a new or empty folder gets a settings file first."""
    from kquota_spark.config.loader import load_settings
    from kquota_spark.process.replaced_file import replace_file

    config = folder / "kquota.yaml"
    try:
        is_ours = config.is_file() and config.read_text("utf-8").startswith(f"{_FIRST_LINE}\n")
        if not is_ours and any(folder.iterdir()):
            raise UserError(f"{folder} holds other files: {_ADVICE}")
    except OSError as error:
        raise _not_written(folder, error) from error
    # The settings first: they mark the folder as ours, also if this process ends before the rest.
    places = {name: json.dumps(str(folder / file)) for name, file in _PLACES.items()}
    text = _SETTINGS.format(first_line=_FIRST_LINE, **places)
    replace_file(config, text.encode(), advice=_ADVICE)
    with _bundled() as bundled:
        replace_file(folder / "quotas.yaml", (bundled / "quotas.yaml").read_bytes(), advice=_ADVICE)
    return load_settings(config)


@contextmanager
def _bundled() -> Iterator[Path]:
    with as_file(files("kquota_spark").joinpath("samples")) as folder:
        yield folder


def _write_tables(settings: Settings, folder: Path) -> None:
    """Write the tables to a temporary folder first, so that existing tables are always complete."""
    from kquota_spark.audit.past.recorded import write_recorded
    from kquota_spark.formats.quota_files.quota_file import read_quota_file

    unfinished = folder.absolute() / "tables.unfinished"
    rmtree(unfinished, ignore_errors=True)
    changes = read_quota_file(folder / "quotas.yaml")
    with _bundled() as bundled:
        [log] = bundled.glob("*.gz")
        write_recorded(settings.changed(tables=str(unfinished)), [(_BROKER_ID, log)], changes, now_ms())
    unfinished.rename(folder / "tables")


def _counted(settings: Settings) -> _Sample:
    from kquota_spark.reports.scope.period import Period
    from kquota_spark.store.reading import open_tables

    with open_tables(settings, "requests", "decisions") as tables:
        lines, buckets, first_ms, last_ms = tables.query(_COUNTS).rows[0]
    return _Sample(lines, buckets, Period(first_ms, last_ms + 1_000))


def _answer(folder: Path, sample: _Sample, report: AuditReport) -> dict[str, Any]:
    worst = max(report.throttled, key=lambda one: one.delay_ms)
    bucket = worst.bucket
    return {
        "lines": sample.lines,
        "buckets": sample.buckets,
        "throttled_buckets": len(report.throttled) + report.throttled_left_out,
        "worst": {
            "bucket": bucket_text(bucket.user, bucket.client_id, bucket.tags),
            "delay_ms": worst.delay_ms,
        },
        "report": str(folder / "report.html"),
        "config": str(folder / "kquota.yaml"),
        "next": [
            f"kquota {command} --config {shlex.quote(str(folder / 'kquota.yaml'))}" for command in _NEXT
        ],
    }


def _print(folder: Path, answer: dict[str, Any]) -> None:
    page = Page()
    throttled = f"{answer['throttled_buckets']} of {answer['buckets']} buckets were throttled"
    most = answer["worst"]
    worst = f"{most['bucket']} most of all: {person_ms(most['delay_ms'])} of delay"
    page.paragraph("", f"{answer['lines']:,} lines of a Kafka 4.1.1 broker: {throttled}, {worst}", indent=0)
    page.paragraph("report", terminal_text(answer["report"]))
    page.paragraph("next", "")
    for command in answer["next"]:
        print_line(f"  {terminal_text(command)}")
