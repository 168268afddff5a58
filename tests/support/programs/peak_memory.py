"""`kquota` in a process of its own, and the most memory that it had."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import ROOT

# Not ru_maxrss: that is at least the memory of the process which started this one.
_PROGRAM = """
import sys
from pathlib import Path
from kquota_spark.cli.main import main
code = main(sys.argv[1:])
status = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in status if line.startswith("VmHWM:")), file=sys.stderr)
sys.exit(code)
"""


def run_with_peak(*arguments: str, timeout_s: float = 50.0) -> tuple[str, int]:
    """Standard output of a command that succeeds, and its peak in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr.splitlines()[-1]) * 1024
