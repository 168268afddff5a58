"""Who is at the command line, and why: what the log of enforcement keeps of a person."""

from __future__ import annotations

import getpass
import os

from kquota_spark.errors import UserError

_REASON_LENGTH = 500


def login_name() -> str:
    """The login name; in a container without an entry for its user, the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def reason_of(text: str | None) -> str:
    """What --reason says.

    Raises:
        UserError: nothing, or too much.
    """
    reason = (text or "").strip()
    if not 0 < len(reason) <= _REASON_LENGTH:
        raise UserError(f"--reason: expected 1 to {_REASON_LENGTH} characters: others will ask why")
    return reason
