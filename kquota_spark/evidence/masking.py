"""Pseudonyms for the names of other tenants in a bundle: the same name has the same pseudonym, amounts stay.

Connections and topics become numbers in the order of their hashes. The replay compares and sorts them, and needs
nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from zlib import crc32

from kquota_spark.evidence.lines import Line
from kquota_spark.model.quotas.entities import Entity, Name
from kquota_spark.model.quotas.rules import RulePeriod
from kquota_spark.pipeline.sent import BucketTags

IsOwn = Callable[[str, str], bool]
"""Whether a user and client id belong to the tenant of a bundle."""


class Mask:
    """Replaces names of others by `user-1`, `client-1` and so on, in the order in which they first appear.

    An empty name stays empty, because it is no name: quotas treat it in another way.
    """

    def __init__(self, own_users: Collection[str], own_client_ids: Collection[str]) -> None:
        self._users = _Pseudonyms("user", own_users)
        self._client_ids = _Pseudonyms("client", own_client_ids)

    @property
    def masked(self) -> int:
        """Number of names that were replaced."""
        return self._users.masked + self._client_ids.masked

    def user(self, name: str) -> str:
        """A user, or its pseudonym."""
        return self._users.of(name)

    def client_id(self, name: str) -> str:
        """A client id, or its pseudonym."""
        return self._client_ids.of(name)

    def bucket(self, bucket: BucketTags) -> BucketTags:
        """The tags of a bucket."""
        return self.user(bucket[0]), self.client_id(bucket[1]), bucket[2]

    def rule(self, rule: RulePeriod) -> RulePeriod:
        """The quotas of an entity of users and client ids."""
        if not isinstance(rule.entity, Entity):
            return rule
        entity = Entity(_part(rule.entity.user, self.user), _part(rule.entity.client_id, self.client_id))
        return replace(rule, entity=entity)


def _part(name: Name, masked: Callable[[str], str]) -> Name:
    return masked(name) if isinstance(name, str) else name


class _Pseudonyms:
    def __init__(self, kind: str, own: Collection[str]) -> None:
        self._own = {*own, ""}
        self._names: dict[str, str] = {}
        self._free = (name for number in count(1) if (name := f"{kind}-{number}") not in self._own)

    @property
    def masked(self) -> int:
        return len(self._names)

    def of(self, name: str) -> str:
        if name in self._own:
            return name
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = next(self._free)
        return found


def mask_of(lines: Iterable[Line], is_own: IsOwn) -> Mask:
    """The mask for lines of several tenants: it keeps the names in the tenant's own lines."""
    clients = {(line["user"], line["client_id"]) for line in lines}
    own = [client for client in clients if is_own(*client)]
    return Mask({user for user, _ in own}, {client_id for _, client_id in own})


def masked_lines(lines: Sequence[Line], mask: Mask) -> list[dict[str, Any]]:
    """Lines with the names of the mask, and with numbers for connections and topics."""
    connections = _ranks(
        crc32(line["connection"].encode()) for line in lines if line["connection"] is not None
    )
    topics = _ranks(each["topic_hash"] for line in lines for each in line["mutations"] or ())
    found = []
    for line in lines:
        connection, mutations = line["connection"], line["mutations"]
        found.append(
            {
                **line,
                "user": mask.user(line["user"]),
                "client_id": mask.client_id(line["client_id"]),
                "connection": None if connection is None else connections[crc32(connection.encode())],
                "mutations": mutations
                and [{**each, "topic_hash": topics[each["topic_hash"]]} for each in mutations],
            }
        )
    return found


def _ranks(hashes: Iterable[int]) -> dict[int, int]:
    """A number for each hash, in the same order."""
    return {each: rank for rank, each in enumerate(sorted({*hashes}))}
