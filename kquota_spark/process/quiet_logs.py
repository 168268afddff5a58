"""Logs of libraries that show secrets at DEBUG, which those who embed this package may have turned on for all logs."""

from __future__ import annotations

import logging


def without_debug(name: str) -> None:
    """Keep a library's logger at INFO or above."""
    log = logging.getLogger(name)
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)
