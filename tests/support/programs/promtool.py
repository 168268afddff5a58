"""Finds promtool, which checks and tests Prometheus' rules; fetches it where it is not installed.

Only the program is taken out of Debian's package: no service is installed, nothing of the system changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_NAME = "promtool"
_INSTALL = "install promtool (apt-get install prometheus, or from the release page of Prometheus) so that it is on PATH"


def cached_promtool() -> Path:
    """Where it is kept once it was fetched; beside the jars."""
    shared = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return shared / "kquota-spark" / "tools" / _NAME


def promtool() -> Path:
    """The program: on PATH, or fetched before, or fetched now.

    Raises:
        RuntimeError: it is not there and cannot be fetched; one line that says what to do.
    """
    found = shutil.which(_NAME)
    if found is not None:
        return Path(found)
    cached = cached_promtool()
    if not cached.is_file():
        _fetch(cached)
    return cached


def _fetch(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        _run(["apt-get", "download", "--quiet", "prometheus"], Path(work))
        [package] = Path(work).glob("prometheus_*.deb")
        _run(["dpkg", "-x", str(package), "unpacked"], Path(work))
        # Last, and whole: two who fetch at a time do not meet half a program.
        (Path(work) / "unpacked" / "usr" / "bin" / _NAME).replace(target)


def _run(program: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            program, cwd=directory, capture_output=True, text=True, check=False, timeout=300
        )
        reason = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise RuntimeError(f"promtool is missing and {program[0]} cannot fetch it ({reason}): {_INSTALL}")


if __name__ == "__main__":
    try:
        print(promtool())
    except RuntimeError as problem:
        sys.exit(str(problem))
