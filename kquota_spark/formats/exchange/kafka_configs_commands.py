"""Command lines of `kafka-configs.sh --alter` that set the quotas, one an entity. Written only.

They alter in place: what they do not name stays. Names are quoted for a POSIX shell. A refusal of one entity
does not stop the others, and the script ends with 1 then.

Source: Kafka's `ConfigCommand`.
"""

from __future__ import annotations

import shlex
from typing import Never

from kquota_spark.formats.exchange.writing import number_text, parts_of, writable
from kquota_spark.model.quotas.entities import Default
from kquota_spark.model.quotas.quota_set import QuotaSet

_TYPES = {"user": "users", "client-id": "clients", "ip": "ips"}
_HEAD = """\
#!/bin/sh
: "${BOOTSTRAP_SERVER:?expected host:port of a broker}"
failed=0
"""


def read(text: str) -> Never:
    """Refuse: nothing runs a stranger's script to see what it would set.

    Raises:
        ValueError: always.
    """
    msg = "commands are only written, never read: import what kafka-configs.sh --describe prints"
    raise ValueError(msg)


def write(quotas: QuotaSet) -> str:
    """A script.

    Raises:
        ValueError: a name or value that nothing can hold, or a name that no command line can.
    """
    lines = []
    for entity, values in writable(quotas):
        words = []
        for kind, name in parts_of(entity):
            named = (
                ["--entity-default"] if isinstance(name, Default) else ["--entity-name", shlex.quote(name)]
            )
            words += ["--entity-type", _TYPES[kind], *named]
        what = ",".join(f"{key.value}={number_text(value)}" for key, value in values.items())
        lines.append(
            f'kafka-configs.sh --bootstrap-server "$BOOTSTRAP_SERVER" --alter {" ".join(words)} --add-config {what} '
            "|| failed=1\n"
        )
    if any("\0" in line for line in lines):
        msg = "a name with a NUL character, which no command line can hold"
        raise ValueError(msg)
    return f"{_HEAD}{''.join(lines)}exit $failed\n"
