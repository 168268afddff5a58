"""The command that would make a change of a quota: dry, and quoted for a shell, since names are hostile."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from kquota_spark.model.quotas.entities import AnyEntity, Default, IpEntity, Name
from kquota_spark.model.quotas.quota_types import AnyKey


def alter_command(
    entity: AnyEntity, add: Mapping[AnyKey, float] | None = None, delete: Iterable[AnyKey] = ()
) -> str:
    """`kquota alter --name user=alice --add producer_byte_rate=2000000 --dry-run`."""
    words = ["kquota", "alter", *_of_entity(entity)]
    for key, value in (add or {}).items():
        words += ["--add", f"{key.value}={value:.10g}" if value % 1 else f"{key.value}={value:.0f}"]
    for key in delete:
        words += ["--delete", key.value]
    return shlex.join([*words, "--dry-run"])


def _of_entity(entity: AnyEntity) -> Iterator[str]:
    if isinstance(entity, IpEntity):
        yield from _of_part("ip", entity.ip)
    else:
        yield from _of_part("user", entity.user)
        yield from _of_part("client-id", entity.client_id)


def _of_part(kind: str, name: Name) -> Iterator[str]:
    if isinstance(name, Default):
        yield from ("--default", kind)
    elif name is not None:
        yield from ("--name", f"{kind}={name}")
