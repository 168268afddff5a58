"""`python -m tests.bench.runs.reading`: seconds to the first and to the last line of each question. 10 minutes.

Run on tables of ten million decisions (`BENCH_DECISIONS`) with twenty buckets that are throttled for an hour
(`BENCH_BUSY_S`), or on those of the settings that are named as argument, e.g. the demo's. `kquota slow` reads a log of
200,000 lines (`BENCH_LOG_LINES`). Each command is a process of its own, as people start it, without a warm cache of
ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from kquota_spark.cli.exit_codes import DONE, FOUND, finds_by_2
from kquota_spark.store.reading import open_tables
from tests.bench.big_tables import write_big_tables
from tests.bench.lines import lines
from tests.bench.report import Report, say, spread
from tests.why_requests import BUSY_S, write_busy_buckets

DECISIONS = int(os.environ.get("BENCH_DECISIONS", "10000000"))
_RUNS = int(os.environ.get("BENCH_RUNS", "3"))
_COLUMNS = {"command": "command", "first_line_s": "first line, s (range)", "whole_s": "whole, s (range)"}
_WITHIN_S = 120
_BUSY_S = int(os.environ.get("BENCH_BUSY_S", str(BUSY_S)))
_LOG_LINES = int(os.environ.get("BENCH_LOG_LINES", "200000"))
COMMANDS = (
    "violations",
    "decisions",
    "decisions --throttled",
    "usage",
    "usage --by-second",
    "tree",
    "top --once",
    "timeline --user {user}",
    "explain --user {user}",
    "resolve --user {user}",
    "agreement",
    "findings",
    "doctor",
    "enforce status",
    "throttled",
    "throttled --episodes --why",
    "why --user {user}",
    "budget",
    "rightsize",
    "impact",
    "slow {log} --broker 1",
    "report --period {day}..{day} --to {page}",
)


class Timed(NamedTuple):
    """Seconds to the first line on standard output, and to the end."""

    first_s: float
    whole_s: float


def main() -> int:
    """Time all commands and print a line for each."""
    if len(sys.argv) > 1:
        return _time_all(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as name:
        root = Path(name)
        say(f"writing tables of {DECISIONS:,} decisions")
        write_big_tables(root / "tables", DECISIONS)
        write_busy_buckets(root / "tables", _BUSY_S)
        config = root / "kquota.yaml"
        # No cluster answers there, and none should be waited for.
        config.write_text(
            f"cluster_id: big\ntables: {root}/tables\nquotas: {{source: file, file: {root}/none.yaml}}\n"
        )
        return _time_all(config)


def _time_all(config: Path) -> int:
    user, day = _a_user_and_the_newest_day(config)
    with tempfile.TemporaryDirectory(prefix="kquota-bench-") as pages, Report("reading", _COLUMNS) as report:
        log = Path(pages, "kafka-request.log")
        log.write_bytes(b"\n".join(line.text for line in lines(range(_LOG_LINES))) + b"\n")
        for command in COMMANDS:
            arguments = command.format(user=user, day=day, page=f"{pages}/report.html", log=log).split()
            runs = [_timed([*arguments, "--config", str(config)]) for _ in range(_RUNS)]
            first_s, whole_s = (spread(seconds) for seconds in zip(*runs, strict=True))
            shown = f"`kquota {shown_command(command)}`"
            report.add({"command": shown, "first_line_s": first_s, "whole_s": whole_s})
    return 0


def shown_command(command: str) -> str:
    """The command as the table shows it."""
    return command.format(user="U", day="DAY", page="FILE", log="LOG")


def _a_user_and_the_newest_day(config: Path) -> tuple[str, str]:
    from kquota_spark.config.loader import load_settings

    with open_tables(load_settings(config), "violations") as tables:
        [found] = tables.query(
            "select min(bucket_user), max(event_date) from violations where bucket_user <> ''"
        ).rows
    return str(found[0]), str(found[1])


def _timed(arguments: list[str]) -> Timed:
    """Time one command.

    Raises:
        SystemExit: it has failed: what it took says nothing.
    """
    command = [sys.executable, "-m", "kquota_spark.cli.main", *arguments]
    start_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first_s = time.perf_counter() - start_s
        process.stdout.read()
        code = process.wait(_WITHIN_S)
    if code not in (DONE, FOUND if finds_by_2(arguments[0]) else DONE):
        raise SystemExit(f"kquota {' '.join(arguments)} has ended with {code}")
    return Timed(first_s, time.perf_counter() - start_s)


if __name__ == "__main__":
    sys.exit(main())
