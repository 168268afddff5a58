"""Names of our own clients of Kafka, the one place that separates them from the clients of users, and their logins.

Each name begins with `kquota-`. But a client id is free text, and anybody may use such a name. So the name alone hides
little: a policy for defaults makes no proposal because of such a client, and `kquota top` hides it while it is small.
"""

from __future__ import annotations

import re

from kquota_spark.config.settings import Settings

ADMIN = "kquota-admin"
"""Queries brokers and alters quotas. Its log lines are shipped, because they record the user of an edit."""
ENFORCER = "kquota-enforcer"
DECISIONS = "kquota-decisions"
"""Reads and writes the topic of decisions."""
_ALL = "kquota"


def own_clients(settings: Settings) -> tuple[str, ...]:
    """The names of our clients: a client id is ours if it equals one of them, or begins with one and `-`."""
    named = (settings.kafka.client_id, settings.ship.client_id, settings.collect.jmx.client_id)
    return tuple(dict.fromkeys(name for name in (_ALL, *named, *settings.ship.exclude_client_ids) if name))


def is_own(client_id: str, names: tuple[str, ...]) -> bool:
    """Whether a client id is ours, by the names of `own_clients`."""
    return any(client_id == name or client_id.startswith(f"{name}-") for name in names)


def own_lines(names: tuple[str, ...]) -> str:
    """A regular expression of RE2 for texts in which each line is a client id of ours; see `own_clients`."""
    line = f"(?:{'|'.join(map(re.escape, names))})(?:-[^\\n]*)?"
    return f"{line}(?:\\n{line})*"


def for_enforcer(settings: Settings) -> Settings:
    """The settings with the enforcer's own logins, if there are some.

    Then programs that only read quotas cannot write them.
    """
    own = settings.enforcement
    kafka = settings.kafka.changed(options=own.options) if own.options else settings.kafka
    login = own.zookeeper_login
    quotas = settings.quotas.changed(zookeeper_login=login) if login.user else settings.quotas
    return settings.changed(kafka=kafka, quotas=quotas)


def enforcer_options(settings: Settings) -> str:
    """The key of the enforcer's client properties, for messages."""
    return "enforcement.options" if settings.enforcement.options else "kafka.options"


def enforcer_zookeeper_login(settings: Settings) -> str:
    """The key of the enforcer's login at ZooKeeper, for messages."""
    return f"{'enforcement' if settings.enforcement.zookeeper_login.user else 'quotas'}.zookeeper_login"
