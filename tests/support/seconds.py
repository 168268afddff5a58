"""Where the seconds of a test run go: by folder, by server start, by `spark-submit`.

A plugin of pytest adds up the phases of each test and, every tenth of a second, looks
which programs run under the test run. `--seconds FILE` makes it write both as JSON. `python -m tests.support.seconds
NAME=FILE ...` prints such files side by side as Markdown, for docs/testing.md.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs.request_lines import json_bodies, request_lines

KINDS = {
    "spark-submit of a job": ("org.apache.spark.deploy.SparkSubmit", "jobs/"),
    "Spark session of the tests": ("org.apache.spark.deploy.SparkSubmit", "pyspark-shell"),
    "Kafka broker or node": ("kafka.Kafka",),
    "ZooKeeper": ("ZooKeeperServerMain",),
    "Chromium": ("chrom", "--headless"),
    "kquota command": ("-m kquota_spark.cli.main",),
    "Python interpreter": ("python", " -c "),
}
"""A program is of the first kind of which its command line has every part."""
_EVERY_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Seen:
    """One process: its kind, how long it was there and what CPU it used, in seconds."""

    kind: str
    first_s: float
    last_s: float
    cpu_s: float = 0.0


class Programs(threading.Thread):
    """Looks at all processes of this machine that began after the test run did."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="seconds")
        self.seen: dict[tuple[str, str], Seen] = {}
        self._ignored = {key for key, _, _ in _processes()}
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self._is_over.wait(_EVERY_S):
            now_s = time.monotonic()
            kinds = {pid: one.kind for (pid, _), one in self.seen.items()}
            for key, parent, cpu_s in _processes():
                if key in self._ignored:
                    continue
                # What forks first has the command line of its parent: the kind is asked until it has one of its own.
                if key not in self.seen and (kind := _kind(key[0])) not in (None, kinds.get(parent)):
                    self.seen[key] = Seen(str(kind), now_s, now_s)
                if key in self.seen:
                    self.seen[key].last_s, self.seen[key].cpu_s = now_s, cpu_s

    def totals(self) -> dict[str, dict[str, float]]:
        """Count, seconds alive and CPU seconds of each kind."""
        self._is_over.set()
        found: dict[str, dict[str, float]] = {}
        for one in list(self.seen.values()):
            total = found.setdefault(one.kind, {"count": 0, "alive_s": 0.0, "cpu_s": 0.0})
            total["count"] += 1
            total["alive_s"] += one.last_s - one.first_s
            total["cpu_s"] += one.cpu_s
        return found


def _processes() -> list[tuple[tuple[str, str], str, float]]:
    """Pid and start, the parent's pid, and CPU seconds."""
    found = []
    for pid in [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found.append(((pid, fields[19]), fields[1], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S))
    return found


def _kind(pid: str) -> str | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return next((kind for kind, parts in KINDS.items() if all(part in command for part in parts)), None)


class Seconds:
    """The phases of each test, by folder, and the programs that ran meanwhile."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._began_s = time.monotonic()
        self._phases: dict[str, dict[str, float]] = defaultdict(
            lambda: {"cases": 0, "test_s": 0.0, "set_up_s": 0.0}
        )
        self._programs = Programs()
        self._programs.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test, with workers in the process that leads them."""
        of_folder = self._phases[report.nodeid.partition("::")[0].rpartition("/")[0]]
        of_folder["cases"] += report.when == "call"
        of_folder["test_s" if report.when == "call" else "set_up_s"] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write all of it."""
        found = {
            "wall_s": time.monotonic() - self._began_s,
            "json_loads_per_s": json_loads_per_s(),
            "folders": dict(sorted(self._phases.items())),
            "programs": self._programs.totals(),
        }
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._target.write_text(json.dumps(found, indent=1), encoding="utf-8")


def json_loads_per_s() -> int:
    """How fast this machine is: lines of a real request log through `json.loads`, as in `make bench`."""
    texts = json_bodies(request_lines())
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        for text in texts:
            json.loads(text)
        best = max(best, len(texts) / (time.perf_counter() - began))
    return round(best)


def merged(files: Sequence[Path], target: Path) -> None:
    """Add up what several runs have written."""
    whole: dict[str, Any] = {"wall_s": 0.0, "json_loads_per_s": 0, "folders": {}, "programs": {}}
    for one in (json.loads(file.read_text(encoding="utf-8")) for file in files):
        whole["wall_s"] += one["wall_s"]
        whole["json_loads_per_s"] = max(whole["json_loads_per_s"], one["json_loads_per_s"])
        for part in ("folders", "programs"):
            for name, figures in one[part].items():
                known = whole[part].setdefault(name, dict.fromkeys(figures, 0))
                for figure, value in figures.items():
                    known[figure] += value
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(whole, indent=1), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seconds FILE`."""
    parser.addoption("--seconds", type=Path, help="write where the seconds went, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing without the option, and nothing in workers."""
    target: Path | None = config.getoption("--seconds")
    if target is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds(target))


def table(runs: Mapping[str, Any]) -> Iterator[str]:
    """Runs side by side, as lines of Markdown; folders below tests/unit are one row."""
    names = list(runs)
    yield "| | " + " | ".join(names) + " |"
    yield "| --- |" + " ---: |" * len(names)
    yield _row("`json.loads`, lines per second", [f"{run['json_loads_per_s']:,}" for run in runs.values()])
    yield _row("**the whole run, seconds**", [f"**{run['wall_s']:,.0f}**" for run in runs.values()])
    folders = [_by_tier(run["folders"]) for run in runs.values()]
    for name in sorted(set().union(*folders)):
        both = [found.get(name) for found in folders]
        yield _row(
            f"{name}: cases, seconds", [f"{one[0]:,.0f}, {one[1]:,.0f}" if one else "" for one in both]
        )
    for kind in KINDS:
        seen = [run["programs"].get(kind) for run in runs.values()]
        cells = [f"{one['count']:,.0f}, {one['cpu_s']:,.0f}" if one else "" for one in seen]
        yield _row(f"{kind}: started, CPU seconds", cells)


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _by_tier(folders: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Cases and seconds of each folder directly below tests/."""
    found: dict[str, tuple[float, float]] = {}
    for folder, figures in folders.items():
        name = folder.split("/")[1]
        cases, seconds = found.get(name, (0.0, 0.0))
        found[name] = cases + figures["cases"], seconds + figures["test_s"] + figures["set_up_s"]
    return found


def main() -> None:
    """Print the table of the runs that are named."""
    named = (argument.partition("=") for argument in sys.argv[1:])
    runs = {name: json.loads(Path(file).read_text(encoding="utf-8")) for name, _, file in named}
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
