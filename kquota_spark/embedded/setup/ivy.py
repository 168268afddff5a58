"""One run of Ivy: progress while it downloads, its own reason when it fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from kquota_spark.errors import UserError
from kquota_spark.process.processes import watchdog

_REPORT_EVERY_S = 5.0
# Ivy waits for a silent server without end. The largest jar takes seconds: this much silence is a dead line.
_STALLED_AFTER_S = 180.0


def retrieve(
    java: Path, class_path: Path, ivy_xml: Path, *, confs: Sequence[str], into: Path, downloads: Path
) -> None:
    """Resolve `ivy_xml` and copy each configuration's jars to `into/<conf>/`, with the Ivy of a class path's directory.

    An interrupted download is resumed from `downloads`, Ivy's own cache.

    Raises:
        UserError: with the reason that Ivy gave.
    """
    command = [str(java), "-cp", str(class_path / "*"), "org.apache.ivy.Main", "-ivy", str(ivy_xml.resolve())]
    # A site with its own mirror of the registry says so in an ivysettings.xml.
    settings = os.environ.get("KQUOTA_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    pattern = f"{into}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command += ["-cache", str(downloads), "-retrieve", pattern, "-confs", *confs]
    lines: list[str] = []
    # Killed or not, we leave no Ivy that goes on writing where the next one reads.
    with (
        watchdog() as group,
        subprocess.Popen(
            command,
            process_group=group,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        reader = threading.Thread(target=_collect, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            stalled = _wait(process, lines, downloads)
        finally:
            process.kill()
            reader.join(timeout=10)
    if stalled:
        raise UserError(_failure(f"nothing came for {_STALLED_AFTER_S:.0f} s"))
    if process.returncode != 0:
        raise UserError(_failure(reason(lines)))


def _failure(why: str) -> str:
    return (
        f"the jars could not be fetched: {why}: check the network, or name a mirror's ivysettings.xml in "
        "KQUOTA_IVY_SETTINGS, and run make setup"
    )


def _collect(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.strip())


def _wait(process: subprocess.Popen[str], lines: list[str], downloads: Path) -> bool:
    """Wait for the end and report on the way; true if nothing came any more."""
    print("jars: fetching them, once (tens of MB, up to two minutes)", file=sys.stderr, flush=True)
    started = moved = time.monotonic()
    seen = -1
    while True:
        try:
            process.wait(timeout=_REPORT_EVERY_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            found = sum(line.startswith("found ") for line in lines)
            fetched = sum(line.startswith("[SUCCESSFUL ]") for line in lines)
            print(
                f"jars: {now - started:3.0f} s, {found} found, {fetched} fetched", file=sys.stderr, flush=True
            )
            amount = _bytes_under(downloads)
            if amount != seen:
                seen, moved = amount, now
            elif now - moved > _STALLED_AFTER_S:
                return True
        else:
            return False


def _bytes_under(directory: Path) -> int:
    amount = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # Ivy renames its partial files under our eyes.
            amount += path.stat().st_size
    return amount


def reason(lines: Sequence[str]) -> str:
    """The line of Ivy's report that says why it failed."""
    text = [line for line in lines if line]
    errors = text[text.index(":::: ERRORS") + 1 :] if ":::: ERRORS" in text else []
    unresolved = [
        line.removeprefix(":: ").strip()
        for line in text
        if line.startswith(":: ") and line.endswith(("not found", "resolve failed"))
    ]
    failed = [line for line in text if line.startswith("[FAILED")]
    java = [line for line in text if line.startswith(("Exception in", "Error:"))]
    for candidates in (errors, unresolved, failed, java):
        if candidates:
            return candidates[0].removeprefix("HttpClientHandler: ")
    return text[-1] if text else "Ivy said nothing"
