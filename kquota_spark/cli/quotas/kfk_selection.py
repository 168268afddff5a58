r"""The entities that the options of `kquota kfk` select, in the order and with the defaults of kfk-quotas.

If several kinds of options are given, only the first in this order counts: --all-users, --all-clients, --all-ips,
--user-clients, --user, --client, --ip. Without options, all entities are selected. In --user-clients the first `=`
separates the user from the client ids, and `,` separates client ids. `\=` and `\,` are part of a name; any other
backslash is literal.
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
"""Selects every entity with such a part; a pair has both a user and a client id."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of a query."""

    kinds: Sequence[str]
    """The given kinds of options, in order of precedence; only the first counts."""
    named: Mapping[str, Sequence[str]]
    """The given values of user_clients, user, client and ip."""
    defaults: frozenset[str]
    """Kinds with a requested default: user, client, ip."""
    is_only: bool
    """Leave out defaults that are not requested."""

    def found_in(self, quotas: QuotaSet) -> list[AnyEntity]:
        """The selected entities that have quotas; defaults come after names.

        Raises:
            UserError: an option names nothing.
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
        """The defaults to append: without --only always, with it only those that are requested."""
        if kind == "user_clients":
            if "client" in self.defaults or not self.is_only:
                yield from (Entity(user_and_clients(text)[0], DEFAULT) for text in self.named[kind])
        elif kind in self.defaults or not self.is_only:
            yield _entity_of(kind, DEFAULT)


def selection_of(options: argparse.Namespace) -> Selection:
    """The selection of the options of a query."""
    defaults = frozenset(kind for kind in ("user", "client", "ip") if getattr(options, f"{kind}_default"))
    kinds = [kind for kind in _KINDS if kind in defaults or getattr(options, kind)]
    if "user_clients" in kinds and "client" in kinds and not options.client:
        kinds.remove("client")  # --client-default beside --user-clients is about these users
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
    """The entities that --user, --client, --ip and their defaults name together, for create and delete.

    A user and a client id together name the pair. A name and the default of one kind name two entities.

    Raises:
        UserError: no entity, an ip beside another kind, or an invalid name.
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
