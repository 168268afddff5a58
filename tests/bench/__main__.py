"""`make bench`: all parts of the benchmark, one after the other, each in a process of its own.

Each part prints its progress to stderr, and to stdout a JSON line per figure and a Markdown table at its end. The
table names the command of the part and the lines per second of `json.loads` in the same run.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = ("model", "throughput", "scale", "growth", "live", "request_log", "reading")


def main() -> int:
    """Run all parts, also after one that fails; 1 if any has failed."""
    failed = []
    for part in PARTS:
        print(f"tests.bench.{part}", file=sys.stderr, flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.bench.{part}"], check=False).returncode:
            failed.append(part)
    print(f"failed: {', '.join(failed) or 'none'}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
