"""Who is at the command line: what the log of enforcement keeps of a person."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """The login name; in a container without an entry for its user, the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
