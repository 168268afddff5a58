"""The quota that governs connections from an address: its own, the default, or none.

Source: Kafka's `ConnectionQuotas`, `IpConfigHandler` (KIP-612). It is independent of quotas of users and client ids.
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
    """The limit in force (connections per second) and the entity that sets it; both None if there is no limit."""

    entity: IpEntity | None = None
    limit: float | None = None


def resolve_ip(ip: str, limit_of: Callable[[IpEntity], float | None]) -> IpResolution:
    """The quota of one client address.

    Args:
        ip: the address of the client, in any spelling.
        limit_of: gives the quota of an entity, None if it has none; it gets entities as `by_address` spells them.

    Raises:
        ValueError: `ip` is not an IPv4 or IPv6 address.
    """
    for entity in (IpEntity(_spelled(ip)), IpEntity(DEFAULT)):
        limit = limit_of(entity)
        if limit is not None:
            return IpResolution(entity, limit)
    return IpResolution()


def by_address(entity: IpEntity) -> IpEntity:
    """The entity with the standard spelling of its address: brokers keep these quotas by address, not by name.

    A host name stays unchanged and so matches no address here, because each broker resolves it by itself. `127.1` stays
    unchanged too, although Java reads it as 127.0.0.1.
    """
    if entity.ip is DEFAULT:
        return entity
    try:
        return replace(entity, ip=_spelled(str(entity.ip)))
    except ValueError:
        return entity


def in_spelling_of(quotas: QuotaSet, others: Iterable[AnyEntity]) -> QuotaSet:
    """The set with each address as the others spell it: two spellings would be two entries that overwrite each other.

    Raises:
        ValueError: two ips of the set are the same address.
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
    """The address as Java reads it: IPv6 may be in brackets, a scope is ignored, mapped IPv4 is IPv4."""
    address = IPv6Address(ip[1:-1]) if ip.startswith("[") and ip.endswith("]") else ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address).partition("%")[0]
