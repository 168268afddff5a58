"""Ports for servers that start later."""

from __future__ import annotations

import contextlib
import random
import socket

_FIRST, _END = 10_000, 32_768
"""Below the ports that Linux (from 32768 on) and others (from 49152 on) give to connections that go out.

One of those would be free when it is chosen, and some client's by the time the server binds it; and whoever connects
again and again to a dead server on such a port is connected to itself one day (TCP's simultaneous open), and holds it.
"""


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on, and no connection of others will take."""
    with contextlib.ExitStack() as stack:
        # All are held until the last is known, so that none is given twice.
        found: list[int] = []
        while len(found) < count:
            port = random.randrange(_FIRST, _END)  # noqa: S311 - no secret
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
        return found
