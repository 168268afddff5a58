"""Runs Ivy: prints progress during downloads, and reports Ivy's own reason for a failure."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from kquota_spark.errors import UserError
from kquota_spark.process.processes import watchdog

_POLL_S, _REPORT_EVERY_S = 0.1, 5.0
# Ivy waits for a silent server forever. The largest jar takes seconds: this much silence means a dead connection.
_STALLED_AFTER_S = 180.0
# A run takes a few seconds: the optimising compiler and a parallel collector would cost more than they save.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Ivy mostly waits for answers, one after the other. Sources and API pages are not needed. The checksums of the registry
# prove less than our list of SHA-256. Without these requests a run takes half the time.
_FEWER_QUESTIONS = (
    "-Divy.maven.lookup.sources=false",
    "-Divy.maven.lookup.javadoc=false",
    "-Divy.checksums=",
)


def retrieve(
    java: Path, class_path: Path, ivy_xml: Path, *, confs: Sequence[str], into: Path, downloads: Path
) -> None:
    """Resolve `ivy_xml` with Ivy, and copy the jars of each configuration to `into/<conf>/`.

    Ivy requests one file after the other, and mostly waits for the registry. So each configuration has its own Ivy
    process, all at the same time. An interrupted download is resumed from their caches in `downloads`.

    Args:
        java: path of the Java program.
        class_path: directory with Ivy's jar.
        ivy_xml: declaration of the jars, per configuration.
        confs: names of configurations in `ivy_xml`.
        into: directory that gets a directory per configuration.
        downloads: directory of Ivy's caches, one per configuration; they may stay for the next call.

    Raises:
        UserError: Ivy failed or stalled; the message has its reason.
    """
    command = [
        str(java),
        *_JAVA_OPTIONS,
        *_FEWER_QUESTIONS,
        "-cp",
        _ivy_of(class_path),
        "org.apache.ivy.Main",
    ]
    command += ["-ivy", str(ivy_xml.resolve())]
    # A site with its own mirror of the registry names it in an ivysettings.xml.
    settings = os.environ.get("KQUOTA_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-retrieve", f"{into}/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    # Even if this process is killed, no Ivy may keep writing where the next one reads.
    with watchdog() as group, contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(_running([*command, "-cache", str(downloads / conf), "-confs", conf], group))
            for conf in confs
        ]
        stalled = _wait(runs, downloads)
        # Found before the other runs are killed: those have no reason of their own.
        failed = next((run for run in runs if run.process.poll()), None)
    if failed is not None:
        raise UserError(_failure(reason(failed.lines)))
    if stalled:
        raise UserError(_failure(f"nothing came for {_STALLED_AFTER_S:.0f} s"))


def _ivy_of(directory: Path) -> str:
    """Ivy's jar as the class path: with all jars of PySpark, a run without downloads takes three times the CPU."""
    return str(next(directory.glob("ivy-*.jar"), directory / "*"))


class _Run(NamedTuple):
    """One Ivy process, and the lines of its output."""

    process: subprocess.Popen[str]
    lines: list[str]


@contextlib.contextmanager
def _running(command: list[str], group: int) -> Iterator[_Run]:
    with subprocess.Popen(
        command,
        process_group=group,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=_collect, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            yield _Run(process, lines)
        finally:
            process.kill()
            reader.join(timeout=10)


def _failure(why: str) -> str:
    return (
        f"the jars could not be fetched: {why}: check the network, or name a mirror's ivysettings.xml in "
        "KQUOTA_IVY_SETTINGS, and run it again"
    )


def _collect(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.strip())


def _wait(runs: Sequence[_Run], downloads: Path) -> bool:
    """Wait until all runs have ended or one has failed, and print progress; return true if the downloads stalled."""
    print("jars: fetching them, once (tens of MB, up to two minutes)", file=sys.stderr, flush=True)
    started = moved = reported = time.monotonic()
    seen = -1
    while not _are_over(runs):
        time.sleep(_POLL_S)
        now = time.monotonic()
        if now - reported < _REPORT_EVERY_S:
            continue
        reported = now
        lines = [line for run in runs for line in run.lines]
        found = sum(line.startswith("found ") for line in lines)
        fetched = sum(line.startswith("[SUCCESSFUL ]") for line in lines)
        print(f"jars: {now - started:3.0f} s, {found} found, {fetched} fetched", file=sys.stderr, flush=True)
        amount = _bytes_under(downloads)
        if amount != seen:
            seen, moved = amount, now
        elif now - moved > _STALLED_AFTER_S:
            return True
    return False


def _are_over(runs: Sequence[_Run]) -> bool:
    codes = [run.process.poll() for run in runs]
    return None not in codes or any(codes)


def _bytes_under(directory: Path) -> int:
    amount = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # Ivy may rename its partial files meanwhile.
            amount += path.stat().st_size
    return amount


def reason(lines: Sequence[str]) -> str:
    """The line of Ivy's output with the reason of its failure."""
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
