"""The entities that have quotas, the eight levels of users and client ids, and their names in ZooKeeper.

Source: Kafka's `ClientQuotaManager` (class comment: order of precedence), `IpConfigHandler`, `ZkData`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import product

from kquota_spark.model.quotas.names import desanitise, sanitise


class Default(Enum):
    """The default entity: a value of its own, so that no user or client called `<default>` can clash with it."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT

Name = str | Default | None
"""A part of an entity: a name, the default, or None where the entity has no such part."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A user, a client id, or a pair, each by name or default.

    Raises:
        ValueError: neither part is given.
    """

    user: Name = None
    client_id: Name = None

    def __post_init__(self) -> None:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs a user or a client id")

    @property
    def level(self) -> int:
        """Place in Kafka's precedence, 1 (user and client id by name) to 8 (default client id)."""
        return LEVELS.index((_kind(self.user), _kind(self.client_id))) + 1

    def __str__(self) -> str:
        """Canonical name: the path below /config, e.g. `users/alice/clients/<default>`."""
        parts = []
        if self.user is not None:
            parts.append(f"users/{_node_name(self.user)}")
        if self.client_id is not None:
            parts.append(f"clients/{_node_name(self.client_id)}")
        return "/".join(parts)

    @classmethod
    def parse(cls, path: str) -> Entity:
        """The entity of a canonical name.

        Raises:
            ValueError: the text is not `users/U`, `clients/C` or `users/U/clients/C`.
        """
        match path.split("/"):
            case ["users", user]:
                return cls(user=_name(user))
            case ["clients", client_id]:
                return cls(client_id=_name(client_id))
            case ["users", user, "clients", client_id]:
                return cls(user=_name(user), client_id=_name(client_id))
        raise ValueError(f"{path!r} is not users/U, clients/C or users/U/clients/C")


@dataclass(frozen=True, slots=True)
class IpEntity:
    """Clients at one address, or at any address without a quota of its own (KIP-612).

    `ip` is the address or host name as it was set. Unlike names of users, it is not sanitised in ZooKeeper. Brokers
    resolve the unchanged name of the node, so `%3A%3A1` is not an address to them.

    Raises:
        ValueError: the name cannot be the name of a node, or equals the default's.
    """

    ip: str | Default

    def __post_init__(self) -> None:
        if isinstance(self.ip, str) and (self.ip in ("", DEFAULT.value) or "/" in self.ip):
            raise ValueError(f"{self.ip!r} is no address or host name")

    @property
    def level(self) -> None:
        """None, because ips are not in the precedence of users and client ids."""
        return

    def __str__(self) -> str:
        """Canonical name: the path below /config, e.g. `ips/10.0.0.1` or `ips/<default>`."""
        return f"ips/{self.ip.value if isinstance(self.ip, Default) else self.ip}"


AnyEntity = Entity | IpEntity


def parse_entity(text: str) -> AnyEntity:
    """The entity of a canonical name; `str` is the inverse.

    Raises:
        ValueError: the text is not `users/U`, `clients/C`, `users/U/clients/C` or `ips/I`.
    """
    if text.startswith("ips/"):
        name = text.removeprefix("ips/")
        return IpEntity(DEFAULT if name == DEFAULT.value else name)
    return Entity.parse(text)


LEVELS = tuple(product(("named", "default", "absent"), repeat=2))[:-1]
"""(user, client id) of each level, most specific first; no level lacks both."""


def _kind(name: Name) -> str:
    if name is None:
        return "absent"
    return "default" if name is DEFAULT else "named"


def _node_name(name: str | Default) -> str:
    return name.value if isinstance(name, Default) else sanitise(name)


def _name(node: str) -> str | Default:
    return DEFAULT if node == DEFAULT.value else desanitise(node)
