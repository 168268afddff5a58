"""The quota tree: every rule below its part of Kafka's configuration, with the traffic that it governed.

The order is users, the client ids below each user, client ids alone, then ips. A rule that governed during the period
and was removed since is in the tree as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order
from kquota_spark.model.quotas.quota_types import CONNECTION, AnyKey, IpQuotaKey, QuotaType


@dataclass(frozen=True, slots=True)
class Hits:
    """The traffic that a rule governed; `bucket_seconds` counts each bucket of each broker once per second.

    Requests, amount and total delay are None where JMX is the only source: its samples contain none of them.
    """

    requests: int | None = 0
    amount: int | None = 0
    bucket_seconds: int = 0
    delay_ms: int | None = 0
    """Total delay, ms."""


class Mark(Enum):
    """A remark about a key of a node."""

    DEFAULT = "default"
    DEAD = "dead"
    SHADOWED = "shadowed"
    NO_HIT = "no hit"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class KeyUse:
    """One key of a node; `value` is None if the key was removed after it governed."""

    key: AnyKey
    value: float | None
    hits: Hits
    marks: tuple[Mark, ...]
    shadowed_by: tuple[str, ...] = ()


@dataclass(slots=True)
class Node:
    """A part of the tree; without `entity` it is a heading or the parent of other nodes."""

    name: Name
    entity: AnyEntity | None = None
    keys: tuple[KeyUse, ...] = ()
    children: list[Node] = field(default_factory=list)

    @property
    def weight(self) -> tuple[int, int]:
        """The most requests, then bucket seconds, that one of its keys governed.

        The keys are not added up, because one request counts under several types.
        """
        return max(((use.hits.requests or 0, use.hits.bucket_seconds) for use in self.keys), default=(0, 0))


RuleKey = tuple[AnyEntity, AnyKey]


class Idle(NamedTuple):
    """Keys of rules that limit nobody: `dead` if the names were not seen, `shadowed` if other rules come before."""

    dead: Collection[RuleKey] = ()
    shadowed: Mapping[RuleKey, tuple[str, ...]] = {}


def quota_type_of(key: AnyKey) -> str:
    """The name that tables use for the type that a key limits."""
    if isinstance(key, IpQuotaKey):
        return CONNECTION
    return next(one.value for one in QuotaType if one.key is key)


def quota_tree(quotas: QuotaSet, hits: Mapping[RuleKey, Hits] | None, idle: Idle) -> list[Node]:
    """The headings users, clients and ips, each with its nodes by level and name; empty headings are left out.

    `hits` is the traffic that each rule governed, None if that is not known.
    """
    users, clients, ips = Node("users"), Node("clients"), Node("ips")
    of_user: dict[Name, Node] = {}
    keys_of: dict[AnyEntity, set[AnyKey]] = {entity: set(values) for entity, values in quotas.items()}
    for entity, key in hits or ():
        keys_of.setdefault(entity, set()).add(key)
    for entity in in_order({entity: {} for entity in keys_of}):
        in_key_order = sorted(keys_of[entity], key=lambda key: key.value)
        keys = tuple(_use((entity, key), quotas.get(entity, {}).get(key), hits, idle) for key in in_key_order)
        if isinstance(entity, IpEntity):
            ips.children.append(Node(entity.ip, entity, keys))
        elif entity.user is None:
            clients.children.append(Node(entity.client_id, entity, keys))
        else:
            node = of_user.setdefault(entity.user, Node(entity.user))
            if entity.client_id is not None:
                node.children.append(Node(entity.client_id, entity, keys))
            else:
                node.entity, node.keys = entity, keys
    users.children = sorted(of_user.values(), key=lambda node: (node.name is DEFAULT, str(node.name)))
    return [heading for heading in (users, clients, ips) if heading.children]


def _use(rule: RuleKey, value: float | None, hits: Mapping[RuleKey, Hits] | None, idle: Idle) -> KeyUse:
    found = Hits() if hits is None else hits.get(rule, Hits())
    marks = [Mark.DEFAULT] if DEFAULT in _parts(rule[0]) else []
    if value is None:
        marks.append(Mark.REMOVED)
    elif rule in idle.dead:
        marks.append(Mark.DEAD)
    elif rule in idle.shadowed:
        marks.append(Mark.SHADOWED)
    elif hits is not None and not found.bucket_seconds and _is_checked(rule[0], hits):
        marks.append(Mark.NO_HIT)
    return KeyUse(rule[1], value, found, tuple(marks), tuple(idle.shadowed.get(rule, ())))


def _is_checked(entity: AnyEntity, hits: Mapping[RuleKey, Hits]) -> bool:
    """Whether the data can show hits of this entity: connections are not in the request log, only in JMX samples."""
    return isinstance(entity, Entity) or any(isinstance(one, IpEntity) for one, _ in hits)


def _parts(entity: AnyEntity) -> tuple[Name, ...]:
    return (entity.ip,) if isinstance(entity, IpEntity) else (entity.user, entity.client_id)


class Line(NamedTuple):
    """One printed line of the tree.

    `is_last` has one entry per depth down to the node: whether the part at that depth is the last of its siblings.
    Without a node, the line represents `more` siblings that are not shown.
    """

    node: Node | None
    is_last: tuple[bool, ...]
    more: int = 0


def lines(tree: Iterable[Node], limit: int | None) -> Iterator[Line]:
    """The tree from top to bottom, most requests first; `limit` is the most nodes with quotas, None for all."""
    tree = list(tree)
    ranked = sorted(
        (node for heading in tree for node in _nodes(heading) if node.entity is not None),
        key=lambda node: node.weight,
        reverse=True,
    )
    kept = {id(node) for node in ranked[:limit]}
    for heading in tree:
        yield Line(heading, ())
        yield from _below(heading, kept, ())


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _below(node: Node, kept: Collection[int], is_last: tuple[bool, ...]) -> Iterator[Line]:
    shown = [child for child in node.children if any(id(one) in kept for one in _nodes(child))]
    shown.sort(key=lambda child: max(one.weight for one in _nodes(child)), reverse=True)
    more = sum(1 for child in node.children for _ in _nodes(child)) - sum(1 for c in shown for _ in _nodes(c))
    for child in shown:
        here = (*is_last, child is shown[-1] and not more)
        yield Line(child, here)
        yield from _below(child, kept, here)
    if more:
        yield Line(None, (*is_last, True), more)
