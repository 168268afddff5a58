"""Where the seconds of a test run go: by folder, by server start, by `spark-submit`.

A plugin of pytest (`-p tests.support.seconds`) adds up the phases of each test and, every tenth of a second, looks
which programs run under the test run. With `--seconds FILE` it writes both as JSON. `python -m tests.support.seconds
NAME=FILE ...` prints such files side by side as Markdown, for docs/testing.md.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import DATA

KINDS = {
    "spark-submit of a job": ("org.apache.spark.deploy.SparkSubmit", "jobs/"),
    "Spark session of the tests": ("org.apache.spark.deploy.SparkSubmit", "pyspark-shell"),
    "Kafka broker or node": ("kafka.Kafka",),
    "ZooKeeper": ("ZooKeeperServerMain",),
    "Chromium": ("chrom", "--headless"),
    "kquota command": ("python", "/bin/kquota"),
    "Python interpreter": ("python", " -c "),
}
"""A program is of the first kind of which its command line has every part."""
_EVERY_S = 0.1
_CAPTURE = "zk39-levels/broker-*.gz"
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
        self._ignored = {key for key, _ in _processes()}
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self._is_over.wait(_EVERY_S):
            now_s = time.monotonic()
            for key, cpu_s in _processes():
                if key in self._ignored:
                    continue
                # What forks first has the command line of its parent: the kind is asked until there is one.
                if key not in self.seen and (kind := _kind(key[0])) is not None:
                    self.seen[key] = Seen(kind, now_s, now_s)
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


def _processes() -> list[tuple[tuple[str, str], float]]:
    found = []
    for pid in [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found.append(((pid, fields[19]), (int(fields[11]) + int(fields[12])) / _TICKS_PER_S))
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
    lines = [
        line
        for file in sorted(DATA.glob(_CAPTURE))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    texts = [line[line.index(b"{") : line.rindex(b"}") + 1] for line in lines]
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        for text in texts:
            json.loads(text)
        best = max(best, len(texts) / (time.perf_counter() - began))
    return round(best)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seconds FILE`."""
    parser.addoption("--seconds", type=Path, help="write where the seconds went, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing without the option, and nothing in workers."""
    target: Path | None = config.getoption("--seconds")
    if target is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds(target))
