"""Options that name entities, in two grammars.

KIP-546, rpk and kcl use `--name user=alice --default client-id --any ip --strict`. The KIP also has plural forms,
`--names=user=alice,client-id=etl --defaults=user,client-id`. kafka-configs.sh uses `--entity-type users --entity-name
alice`, or the short form `--user alice --client-defaults`. A command line uses one of these grammars. As in
kafka-configs.sh, it uses either the long or the short form.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

from kquota_spark.errors import UserError
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Default
from kquota_spark.model.quotas.quota_set import (
    ANY,
    AnyName,
    EntityFilter,
    EntityType,
    entity_of,
    parts_of,
)

_TYPES = {kind.value: kind for kind in EntityType}
_PLURALS = {"users": EntityType.USER, "clients": EntityType.CLIENT_ID, "ips": EntityType.IP}
_SHORT = {"user": EntityType.USER, "client": EntityType.CLIENT_ID, "ip": EntityType.IP}
_PAIR = re.compile(f",(?=(?:{'|'.join(_TYPES)})=)")
_Part = tuple[EntityType, str | Default | AnyName]


def add_entity_options(parser: argparse.ArgumentParser, *, is_filter: bool) -> None:
    """Add both grammars; without `is_filter` only the options that name one entity."""
    one = parser.add_argument_group("entities by type and name", "types: user, client-id, ip")
    one.set_defaults(parts=[], configs=[], short=[], usage=parser.error)
    one.add_argument("--name", action="append", dest="parts", type=_named, metavar="TYPE=NAME",
                     help="of this name; may be repeated for another type")  # fmt: skip
    one.add_argument("--names", action="extend", dest="parts", type=_names, metavar="TYPE=NAME,...",
                     help="the same, several in one; a name with a comma needs --name")  # fmt: skip
    one.add_argument("--default", action="append", dest="parts", type=_default, metavar="TYPE",
                     help="the default of this type")  # fmt: skip
    one.add_argument("--defaults", action="extend", dest="parts", type=_defaults, metavar="TYPE,...",
                     help="the same, several in one")  # fmt: skip
    if is_filter:
        one.add_argument("--any", action="append", dest="parts", type=lambda text: (_kind(text), ANY), metavar="TYPE",
                         help="any name of this type, and its default")  # fmt: skip
        one.add_argument("--strict", action="store_true", help="only entities with no other type")
    configs = parser.add_argument_group("entities as kafka-configs.sh names them", "not beside those above")
    configs.add_argument("--entity-type", action="append", dest="configs", type=_entity_type, metavar="TYPE",
                         help="users, clients or ips; users and clients together")  # fmt: skip
    configs.add_argument("--entity-name", action="append", dest="configs", type=_entity_name, metavar="NAME",
                         help="its name, in the order of the types")  # fmt: skip
    configs.add_argument(
        "--entity-default", action="append_const", dest="configs", const=DEFAULT, help="its default"
    )
    for word, kind in _SHORT.items():
        names = (f"--{word}", "--client-id") if kind is EntityType.CLIENT_ID else (f"--{word}",)
        configs.add_argument(*names, action="append", dest="short", type=partial(_typed, kind), metavar="NAME",
                             help=f"the {kind.value} of this name")  # fmt: skip
        configs.add_argument(f"--{word}-defaults", action="append_const", dest="short", const=(kind, DEFAULT),
                             help=f"the default {kind.value}")  # fmt: skip


def asked_filter(options: argparse.Namespace) -> EntityFilter:
    """The filter of the options that `add_entity_options` adds with `is_filter`; without options it takes all entities.

    Raises:
        SystemExit: with 2, a usage error.
    """
    parts = dict(_asked(options))
    is_as_configs = bool(options.configs or options.short)
    if is_as_configs and options.strict:
        _wrong(options, "--strict: not beside the forms of kafka-configs.sh, which are strict themselves")
    try:
        return EntityFilter(parts, is_strict=options.strict or is_as_configs)
    except ValueError as error:
        _wrong(options, f"{error}: --name, --default or --any names one")


def asked_entity(options: argparse.Namespace) -> AnyEntity:
    """The one entity that the options of `add_entity_options` name.

    Raises:
        SystemExit: with 2, a usage error.
    """
    parts: dict[EntityType, str | Default] = {}
    for kind, name in _asked(options):
        if isinstance(name, AnyName):
            _wrong(options, f"--entity-type: {kind.value} without a name: --entity-name or --entity-default")
        parts[kind] = name
    if not parts:
        _wrong(options, "whose quotas: give --name or --default")
    try:
        return entity_of(parts)
    except ValueError as error:
        _wrong(options, str(error))


def require_name(entity: AnyEntity, *, is_set: bool) -> None:
    """Check that a client can have the names of an entity.

    A migration may have changed a default into such a name (KAFKA-16411). It can be removed, but not set.

    Args:
        entity: the entity to edit.
        is_set: whether a quota of it is set.

    Raises:
        UserError: a name is empty, is the name of the default, or is not UTF-8.
    """
    from kquota_spark.formats.exchange.checks import name_problem

    for kind, name in parts_of(entity).items():
        if name != "" and (problem := name_problem(name)) is not None:
            raise UserError(f"{kind.value} {name!r}: {problem}")
        if is_set and name in ("", DEFAULT.value):
            problem = "a name cannot be empty" if name == "" else f"no name is {name}"
            raise UserError(f"{entity}: {problem}; the default has its own option, see --help")


def _asked(options: argparse.Namespace) -> list[_Part]:
    given = [group for group in (options.parts, options.configs, options.short) if group]
    if len(given) > 1:
        forms = "--name and --default, --entity-type, or --user, --client and --ip"
        _wrong(options, f"entities in two forms, expected one of: {forms}")
    parts = list(_zipped(options)) if options.configs else [*options.parts, *options.short]
    kinds = [kind for kind, _ in parts]
    for kind in kinds:
        if kinds.count(kind) > 1:
            _wrong(options, f"{kind.value} is named twice, expected once")
    return parts


def _zipped(options: argparse.Namespace) -> Iterator[_Part]:
    """The types and names of kafka-configs.sh, paired in their order; a type without a name means any name."""
    kinds = [one for one in options.configs if isinstance(one, EntityType)]
    names = [one for one in options.configs if not isinstance(one, EntityType)]
    if len(names) > len(kinds):
        _wrong(options, "more names than --entity-type")
    for index, kind in enumerate(kinds):
        yield kind, names[index] if index < len(names) else ANY


def _wrong(options: argparse.Namespace, problem: str) -> NoReturn:
    options.usage(problem)
    raise AssertionError  # options.usage ends the program


def _kind(text: str) -> EntityType:
    if text in _TYPES:
        return _TYPES[text]
    raise argparse.ArgumentTypeError(f"{text!r}, expected one of {', '.join(_TYPES)}")


def _named(text: str) -> _Part:
    """A type and a name. A pair in the form of rpk is refused: here it would be one user with a strange name."""
    pair = _PAIR.split(text)
    if len(pair) > 1:
        kind, _, name = text.partition("=")
        option = next((word for word, of in _SHORT.items() if of.value == kind), kind)
        options = " ".join(f"--name {shlex.quote(part)}" for part in pair)
        raise argparse.ArgumentTypeError(
            f"{text!r}: that is a pair: write {options}; a {kind} of that very name is --{option} {shlex.quote(name)}"
        )
    return _named_one(text)


def _named_one(text: str) -> _Part:
    kind, equals, name = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}, expected TYPE=NAME, e.g. user=alice")
    return _kind(kind), name


def _names(text: str) -> list[_Part]:
    try:
        return [_named_one(pair) for pair in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; a name that has a comma is given by --name TYPE=NAME"
        ) from None


def _default(text: str) -> _Part:
    return _kind(text), DEFAULT


def _defaults(text: str) -> list[_Part]:
    return [_default(kind) for kind in text.split(",")]


def _entity_type(text: str) -> EntityType:
    if text in _PLURALS:
        return _PLURALS[text]
    raise argparse.ArgumentTypeError(
        f"{text!r}, expected one of {', '.join(_PLURALS)}: quotas have no others"
    )


def _entity_name(text: str) -> str:
    if text:
        return text
    raise argparse.ArgumentTypeError("empty: the default is --entity-default")


def _typed(kind: EntityType, text: str) -> _Part:
    if text:
        return kind, text
    raise argparse.ArgumentTypeError(f"empty: the default {kind.value} has its own option")
