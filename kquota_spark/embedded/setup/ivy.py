"""Runs of Ivy: progress while they download, the reason of Ivy itself when one fails."""

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
# Ivy waits for a silent server without end. The largest jar takes seconds: this much silence is a dead line.
_STALLED_AFTER_S = 180.0
# A run of a few seconds: the optimizing compiler and a parallel collector would cost more than they save.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Most of the time is waiting for answers, one after the other. Nobody needs sources or pages of the API, and the
# checksums of the registry prove less than the list of SHA-256 does: without them it takes half the time.
_FEWER_QUESTIONS = (
    "-Divy.maven.lookup.sources=false",
    "-Divy.maven.lookup.javadoc=false",
    "-Divy.checksums=",
)


def retrieve(
    java: Path, class_path: Path, ivy_xml: Path, *, confs: Sequence[str], into: Path, downloads: Path
) -> None:
    """Resolve `ivy_xml` and copy each configuration's jars to `into/<conf>/`, with the Ivy of a class path's directory.

    Ivy asks for one file after the other, and most of the time is spent on waiting for the registry. So each
    configuration has an Ivy of its own, all at the same time. An interrupted download is resumed from `downloads`,
    their caches.

    Args:
        java: the program.
        class_path: directory with Ivy's own jar.
        ivy_xml: declares the jars, per configuration.
        confs: names of configurations in `ivy_xml`.
        into: gets a directory per configuration.
        downloads: Ivy's caches, one per configuration; they may stay for the next call.

    Raises:
        UserError: with the reason that Ivy gave.
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
    # A site with its own mirror of the registry says so in an ivysettings.xml.
    settings = os.environ.get("KQUOTA_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-retrieve", f"{into}/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    # Killed or not, we leave no Ivy that goes on writing where the next one reads.
    with watchdog() as group, contextlib.ExitStack() as stack:
        runs = [
            stack.enter_context(_running([*command, "-cache", str(downloads / conf), "-confs", conf], group))
            for conf in confs
        ]
        stalled = _wait(runs, downloads)
        # Before the others are ended too, without a reason of their own.
        failed = next((run for run in runs if run.process.poll()), None)
    if failed is not None:
        raise UserError(_failure(reason(failed.lines)))
    if stalled:
        raise UserError(_failure(f"nothing came for {_STALLED_AFTER_S:.0f} s"))


def _ivy_of(directory: Path) -> str:
    """Ivy's jar alone: all jars of PySpark on the class path cost three times the CPU of a run without downloads."""
    return str(next(directory.glob("ivy-*.jar"), directory / "*"))


class _Run(NamedTuple):
    """One Ivy, and what it has said."""

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
    """Wait until all have ended or one has failed, and report on the way; true if nothing came any more."""
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
