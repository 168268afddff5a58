"""Lines for the person who runs a program. They go to standard error, because standard output is for results.

Logs of libraries are not part of them; some show secrets at DEBUG.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import time_of_day


def notice(text: str) -> None:
    """Print a line to standard error and flush it."""
    print(text, file=sys.stderr, flush=True)


def notice_with_time(text: str) -> None:
    """Print a line after this machine's time of day, as its log4j does; for a program that runs for days."""
    notice(f"{time_of_day()} {text}")


def notices_of(command: str) -> Callable[[str], None]:
    """A function that prints a line after the command's name, with control characters escaped."""
    return lambda text: notice(f"{command}: {terminal_text(text)}")


def late_notice(after_s: float) -> Callable[[str], None]:
    """A function that prints a line, but only from `after_s` seconds on: for the steps of a program that is slow."""
    begun_s = time.monotonic()

    def notice_if_late(text: str) -> None:
        if time.monotonic() - begun_s > after_s:
            notice(text)

    return notice_if_late


def spaced_notice(every_s: float) -> Callable[[str], None]:
    """A function that prints a line every `every_s` seconds at most, and none before: for progress that comes often."""
    printed_s = time.monotonic()

    def notice_if_due(text: str) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s > every_s:
            printed_s = time.monotonic()
            notice(text)

    return notice_if_due


def without_debug(name: str) -> None:
    """Keep a library's logger at INFO or above; a program that embeds this package may have set all logs to DEBUG."""
    log = logging.getLogger(name)
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)
