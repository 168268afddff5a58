"""Values from elsewhere: `${NAME}` of the environment, and `${file:/run/secrets/x}` of a file.

So secrets stay out of the settings. What was put in is never read again, and stands in no message.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

_VARIABLE = re.compile(r"\$\{(?:file:([^{}]+)|(\w+))\}")
_MOST_BYTES = 65_536


def substituted(value: str, where: str, problems: list[str]) -> str:
    """The value with all variables replaced; problems are appended, with the key that they are at."""

    def replace(match: re.Match[str]) -> str:
        path, name = match.groups()
        try:
            return _of_file(Path(path)) if path else os.environ[name]
        except KeyError:
            problems.append(f"{where}: environment variable {name} is not set")
        except OSError as error:
            problems.append(f"{where}: file {path} cannot be read: {error.strerror}")
        except ValueError as error:
            problems.append(f"{where}: file {path}: {error}")
        return ""

    return _VARIABLE.sub(replace, value)


def _of_file(path: Path) -> str:
    """The text of a file without its line end.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none that holds a secret; says what it is, never what is in it.
    """
    # Without waiting, for a FIFO would be waited for.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as opened:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no regular file")
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES} bytes, expected one value")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    if not text:
        raise ValueError("empty")
    if found.st_mode & stat.S_IROTH:
        # Not refused: orchestrators mount secrets like this into a container of one user.
        print(f"warning: {path} can be read by every user: chmod o-r", file=sys.stderr)
    return text
