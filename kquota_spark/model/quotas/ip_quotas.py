"""Which quota governs the connections from an address: its own, the default, or none.

Source: Kafka's `ConnectionQuotas`, `IpConfigHandler` (KIP-612). Independent of the quotas of users and client ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey


@dataclass(frozen=True, slots=True)
class IpResolution:
    """The limit in force, in connections per second, and the entity it comes from; None where nothing limits."""

    entity: IpEntity | None = None
    limit: float | None = None


def resolve_ip(ip: str, limit_of: Callable[[IpEntity], float | None]) -> IpResolution:
    """The quota of one client address.

    Args:
        ip: the address of the client, in any spelling.
        limit_of: the quota of an entity, None if it has none; asked for entities as `by_address` spells them.

    Raises:
        ValueError: `ip` is no IPv4 or IPv6 address.
    """
    for entity in (IpEntity(_spelled(ip)), IpEntity(DEFAULT)):
        limit = limit_of(entity)
        if limit is not None:
            return IpResolution(entity, limit)
    return IpResolution()


def by_address(entity: IpEntity) -> IpEntity:
    """The entity in the one spelling of its address: brokers keep these quotas by address, not by name.

    A host name stays as it is and so matches no address here: each broker resolves it for itself. So does
    `127.1`, which Java takes for 127.0.0.1.
    """
    if entity.ip is DEFAULT:
        return entity
    try:
        return replace(entity, ip=_spelled(str(entity.ip)))
    except ValueError:
        return entity


def in_spelling_of(quotas: QuotaSet, others: Iterable[AnyEntity]) -> QuotaSet:
    """The set with each address as the others spell it: two spellings are two entries that overwrite each other.

    Raises:
        ValueError: two ips of the set are one address.
    """
    spelled = {by_address(other): other for other in others if isinstance(other, IpEntity)}
    found: dict[AnyEntity, Mapping[AnyKey, float]] = {}
    for entity, values in quotas.items():
        key = spelled.setdefault(by_address(entity), entity) if isinstance(entity, IpEntity) else entity
        if key in found:
            raise ValueError(f"{entity} and another spelling of it are one address, expected one of them")
        found[key] = values
    return found


def _spelled(ip: str) -> str:
    """As Java reads addresses: IPv6 may stand in brackets, a scope does not count, mapped IPv4 is IPv4."""
    address = IPv6Address(ip[1:-1]) if ip.startswith("[") and ip.endswith("]") else ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address).partition("%")[0]
