r"""Which entities the options of `kquota kfk` mean, in the order and with the defaults of kfk-quotas.

Of several kinds of options the first in this order counts: --all-users, --all-clients, --all-ips, --user-clients,
--user, --client, --ip; without any it is everything. In --user-clients the first `=` parts the user from the client ids
and each `,` parts those; `\=` and `\,` are part of a name, and any other backslash is itself.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet, in_order

_KINDS = ("all_users", "all_clients", "all_ips", "user_clients", "user", "client", "ip")
_WHOLE: dict[str, Callable[[AnyEntity], bool]] = {
    "all_users": lambda entity: isinstance(entity, Entity) and entity.user is not None,
    "all_clients": lambda entity: isinstance(entity, Entity) and entity.client_id is not None,
    "all_ips": lambda entity: isinstance(entity, IpEntity),
}
"""Every entity that has such a part: pairs are of a user and of a client id."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of a query."""

    kinds: Sequence[str]
    """The kinds of options that were given, in the order in which they count; only the first does."""
    named: Mapping[str, Sequence[str]]
    """What was given of user_clients, user, client and ip."""
    defaults: frozenset[str]
    """Kinds whose default is asked for: user, client, ip."""
    is_only: bool
    """Defaults that are not asked for are left out."""

    def found_in(self, quotas: QuotaSet) -> list[AnyEntity]:
        """The entities with quotas that are asked for; a default behind those that are named.

        Raises:
            UserError: an option that names nothing.
        """
        if not self.kinds:
            return in_order(quotas)
        kind = self.kinds[0]
        if kind in _WHOLE:
            return list(filter(_WHOLE[kind], in_order(quotas)))
        wanted = [*self._named(kind), *self._defaults(kind)]
        return [entity for entity in dict.fromkeys(wanted) if entity in quotas]

    def _named(self, kind: str) -> Iterator[AnyEntity]:
        for text in self.named[kind]:
            if kind == "user_clients":
                user, client_ids = user_and_clients(text)
                yield from (Entity(user, client_id) for client_id in client_ids)
            else:
                yield _entity_of(kind, text)

    def _defaults(self, kind: str) -> Iterator[AnyEntity]:
        """What is appended: without --only always, with it where the default is asked for."""
        if kind == "user_clients":
            if "client" in self.defaults or not self.is_only:
                yield from (Entity(user_and_clients(text)[0], DEFAULT) for text in self.named[kind])
        elif kind in self.defaults or not self.is_only:
            yield _entity_of(kind, DEFAULT)


def selection_of(options: argparse.Namespace) -> Selection:
    """What the options of a query ask for."""
    defaults = frozenset(kind for kind in ("user", "client", "ip") if getattr(options, f"{kind}_default"))
    kinds = [kind for kind in _KINDS if kind in defaults or getattr(options, kind)]
    if "user_clients" in kinds and "client" in kinds and not options.client:
        kinds.remove("client")  # --client-default beside --user-clients belongs to that
    named = {kind: getattr(options, kind) for kind in _KINDS if kind not in _WHOLE}
    return Selection(kinds, named, defaults, options.only)


def user_and_clients(text: str) -> tuple[str, list[str]]:
    """The user and the client ids of a --user-clients.

    Raises:
        UserError: there is no `=`, or a name is empty.
    """
    user, *rest = re.split(r"(?<!\\)=", text, maxsplit=1)
    client_ids = [name for names in rest for name in re.split(r"(?<!\\),", names)]
    if not user or not client_ids or not all(client_ids):
        raise UserError(rf"--user-clients: {text!r}, expected USER=CLIENT,CLIENT (\= and \, inside of names)")
    return _unescaped(user), list(map(_unescaped, client_ids))


def _unescaped(name: str) -> str:
    return re.sub(r"\\([=,])", r"\1", name)


def chosen(options: argparse.Namespace) -> list[AnyEntity]:
    """The entities that --user, --client, --ip and their defaults make together, of create and delete.

    A user and a client id are the pair. A name and the default of one kind are two entities.

    Raises:
        UserError: none, an ip beside another, or a name that cannot be one.
    """
    users, client_ids, ips = (
        [*([name] if name is not None else []), *([DEFAULT] if is_default else [])]
        for name, is_default in (
            (options.user, options.user_default),
            (options.client, options.client_default),
            (options.ip, options.ip_default),
        )
    )
    if ips and (users or client_ids):
        raise UserError("--ip: an ip stands alone, without user and client")
    if not (users or client_ids or ips):
        raise UserError(
            "whose quota: give --user, --client or --ip, or one of --user-default, --client-default, --ip-default"
        )
    if ips:
        return [_entity_of("ip", ip) for ip in ips]
    return [Entity(*names) for names in product(users or [None], client_ids or [None])]


def only_one(entities: Sequence[AnyEntity]) -> AnyEntity:
    """The entity of a create, or of a delete without --all.

    Raises:
        UserError: a name and the default of the same kind are given.
    """
    if len(entities) > 1:
        raise UserError(f"{' and '.join(map(str, entities))}: name one of them")
    return entities[0]


def _entity_of(kind: str, name: str | Default) -> AnyEntity:
    if kind != "ip":
        return Entity(user=name) if kind == "user" else Entity(client_id=name)
    try:
        return IpEntity(name)
    except ValueError as error:
        raise UserError(f"--ip: {error}") from error
