"""Lines for the person who runs a program. They go to standard error, because standard output is for results.

Logs of libraries are no such lines, and some show secrets at DEBUG.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.process.clock import time_of_day


def say(text: str) -> None:
    """Print a line now."""
    print(text, file=sys.stderr, flush=True)


def say_with_time(text: str) -> None:
    """`say` for a program that runs for days: with the time of day of this machine, as in its own log4j."""
    say(f"{time_of_day()} {text}")


def said_by(command: str) -> Callable[[str], None]:
    """`say` for a command that runs beside others: with its name before each line, control characters escaped."""
    return lambda text: say(f"{command}: {terminal_text(text)}")


def without_debug(name: str) -> None:
    """Keep a library's logger at INFO or above; who embeds this package may have turned DEBUG on for all logs."""
    log = logging.getLogger(name)
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)
