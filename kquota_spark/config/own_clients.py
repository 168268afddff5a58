"""Names of our own clients of Kafka, and the one place that separates them from the clients of users.

Each is called `kquota-...`. But a client id is free text, and anybody's client may be called so. So a name takes
nothing out of sight: a policy for defaults makes no proposal because of it, and `kquota top` hides it
while it is small.
"""

from __future__ import annotations

import re

from kquota_spark.config.settings import Settings

ADMIN = "kquota-admin"
"""Asks brokers, and alters quotas. Its lines are shipped: they record whose edit it was."""
ENFORCER = "kquota-enforcer"
DECISIONS = "kquota-decisions"
"""Reads and writes the topic of decisions."""
_ALL = "kquota"


def own_clients(settings: Settings) -> tuple[str, ...]:
    """Names of our clients: a client id is ours if it is one of these, or one followed by `-` and anything."""
    named = (settings.kafka.client_id, settings.ship.client_id, settings.collect.jmx.client_id)
    return tuple(dict.fromkeys(name for name in (_ALL, *named, *settings.ship.exclude_client_ids) if name))


def is_own(client_id: str, names: tuple[str, ...]) -> bool:
    """Whether a client id is ours, by the names of `own_clients`."""
    return any(client_id == name or client_id.startswith(f"{name}-") for name in names)


def own_lines(names: tuple[str, ...]) -> str:
    """A regular expression of RE2 for a text whose lines are all client ids of ours, by the names of `own_clients`."""
    line = f"(?:{'|'.join(map(re.escape, names))})(?:-[^\\n]*)?"
    return f"{line}(?:\\n{line})*"
