"""Selection of the logs to ship and of their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kquota_spark.errors import UserError

_CLIENT_ID = b'"clientId":"'
# Maximum bytes before the client id: the time, the level and fields that hold numbers and short words.
_HEADER_WITHIN_BYTES = 512


@dataclass(frozen=True, slots=True)
class LogFile:
    """The request log of one broker, including the rotated files beside it."""

    broker_id: int
    path: Path


def log_files(texts: Sequence[str], where: str) -> list[LogFile]:
    """Read `<broker id>=<path>` texts, one for each broker; `where` is the setting or option, for messages.

    Raises:
        UserError: there are none, one has another form, or a broker or path occurs twice.
    """
    expected = "expected <broker id>=<path>, e.g. 1=/var/log/kafka/kafka-request.log"
    if not texts:
        raise UserError(f"{where}: no log to ship, {expected}")
    files: dict[int, LogFile] = {}
    for text in texts:
        number, _, path = text.partition("=")
        if not (number.isascii() and number.isdigit() and path):
            raise UserError(f"{where}: {text!r}, {expected}")
        file = LogFile(int(number), Path(path))
        if file.broker_id in files or file.path in {other.path for other in files.values()}:
            raise UserError(
                f"{where}: {text!r}: the broker or the path is there twice, expected one log each"
            )
        files[file.broker_id] = file
    return list(files.values())


def line_filter(client_ids: Sequence[str]) -> Callable[[bytes], bool]:
    """A function that is true for lines of our own clients. Shipping them would create more of them without end.

    A line is ours if its request header has one of these client ids. Spark appends to a client id, so one followed
    by `-` and any text counts as well.
    """
    if not client_ids:
        return lambda line: False
    # Jackson escapes only quotes, backslashes and control characters.
    escaped = [json.dumps(client_id, ensure_ascii=False)[1:-1].encode() for client_id in client_ids]
    starts = tuple(escaped)
    # Only flat fields precede the client id, in the header and in the line, so no text of a client can imitate it.
    fields = rb'(?:"\w+":[-\w.]+,)*'
    names = b"|".join(map(re.escape, escaped))
    start = rb"[^{]{0,256}\{" + fields + rb'"requestHeader":\{' + fields
    header = re.compile(start + _CLIENT_ID + rb"(?:" + names + rb')["-]')

    def is_ours(line: bytes) -> bool:
        # In nearly all lines the first client id is that of the header and not ours: this check is cheap.
        at = line.find(_CLIENT_ID, 0, _HEADER_WITHIN_BYTES)
        return at >= 0 and line.startswith(starts, at + len(_CLIENT_ID)) and header.match(line) is not None

    return is_ours
