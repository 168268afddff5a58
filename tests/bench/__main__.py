"""`make bench`: the parts of the benchmark, one after the other, each in a process of its own.

Each part prints its progress to stderr, and to stdout a JSON line per row and a Markdown table at its end. The
table names the command of the part and the lines per second of `json.loads` in the same run.
"""

from __future__ import annotations

import signal
import subprocess
import sys

PARTS = (
    "model",
    "stages",
    "throughput",
    "scale",
    "growth",
    "shadow",
    "live",
    "request_log",
    "reading",
    "age",
    "violated",
    "driver",
)
LONG = ("soak",)
"""Parts that run only by their own commands."""


def command_of(part: str) -> list[str]:
    """The command that runs one part."""
    return [sys.executable, "-m", f"tests.bench.runs.{part}"]


def main() -> int:
    """Run the parts, also after one that fails; 1 if any has failed. A signal ends the part and then this process."""
    failed, signals = list[str](), list[int]()
    for part in PARTS:
        print(f"tests.bench.runs.{part}", file=sys.stderr, flush=True)
        if _run(part, signals):
            failed.append(part)
        if signals:
            return 128 + signals[0]
    print(f"failed: {', '.join(failed) or 'none'}", file=sys.stderr)
    return 1 if failed else 0


def _run(part: str, signals: list[int]) -> int:
    """Exit status of a part. It is never killed: it has to end its job and its servers itself."""
    process = subprocess.Popen(command_of(part))

    def stop(number: int, _: object) -> None:
        signals.append(number)
        # A terminal sends its interrupt to both.
        if number == signal.SIGTERM:
            process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
