"""Commands that change a quota, quoted for a shell because names can be hostile."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.reports.scope.cluster_command import on_cluster
from kquota_spark.reports.scope.shared_rows import Recommendation


def alter_command(
    entity: AnyEntity, add: Mapping[AnyKey, float] | None = None, delete: Iterable[AnyKey] = ()
) -> str:
    """A dry run of a change: `kquota alter --name user=alice --add producer_byte_rate=2000000 --dry-run`."""
    words = ["kquota", "alter", *_of_entity(entity)]
    for key, value in (add or {}).items():
        words += ["--add", f"{key.value}={_number(value)}"]
    for key in delete:
        words += ["--delete", key.value]
    return shlex.join([*words, "--dry-run"])


def whatif_command(entity: Entity, values: Mapping[AnyKey, float], from_ms: int, to_ms: int) -> str:
    """A replay of a period under other values; empty for a name that `--add` cannot express.

    Args:
        entity: the entity that gets the values.
        values: the values by key, per second.
        from_ms: first second, epoch ms.
        to_ms: end, epoch ms, exclusive.

    Example: `kquota whatif --add user=alice,producer_byte_rate=2000000 --since 2026-11-21T05:40:00Z --until ...`.
    """
    parts = [("user", entity.user), ("client-id", entity.client_id)]
    names = [(part, name) for part, name in parts if name is not None]
    if any(isinstance(name, str) and ("," in name or name in ("", DEFAULT.value)) for _, name in names):
        return ""
    words = [f"{part}={name.value if isinstance(name, Default) else name}" for part, name in names]
    words += [f"{key.value}={_number(value)}" for key, value in values.items()]
    period = ["--since", iso_time(from_ms), "--until", iso_time(to_ms)]
    return shlex.join(["kquota", "whatif", "--add", ",".join(words), *period])


def override_command(entity: Entity, key: QuotaKey, value: float) -> str:
    """A temporary change for two hours, as a command.

    Example: `kquota override set --user=alice --key producer_byte_rate --value 2000000 --for 2h --reason throttled`.
    """
    words = ["kquota", "override", "set"]
    for option, name in (("user", entity.user), ("client", entity.client_id)):
        if isinstance(name, Default):
            words.append(f"--{option}-default")
        elif name is not None:
            words.append(f"--{option}={name}")
    words += ["--key", key.value, "--value", _number(value)]
    return shlex.join([*words, "--for", "2h", "--reason", "throttled"])


def with_settings(one: Recommendation, file: str) -> Recommendation:
    """The recommendation with `--config FILE` in its commands, so that they run in any shell on the same cluster.

    Args:
        one: with commands that name no cluster.
        file: path of the settings; empty for the built-in defaults, which need no option.
    """
    if not file:
        return one
    others = tuple(
        replace(other, command=on_cluster(other.command, file)) if other.command else other
        for other in one.alternatives
    )
    return replace(one, command=on_cluster(one.command, file) if one.command else "", alternatives=others)


def _number(value: float) -> str:
    return f"{value:.10g}" if value % 1 else f"{value:.0f}"


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
