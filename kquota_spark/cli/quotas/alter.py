"""`kquota alter`: sets and removes quotas of one entity in place; reports what governs instead of a removed quota."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

from kquota_spark.cli.chosen.cluster_choice import (
    add_cluster_options,
    chosen_cluster,
    cluster_words,
    image_of,
    settings_beside,
)
from kquota_spark.cli.chosen.entity_options import add_entity_options, asked_entity, require_name
from kquota_spark.cli.exit_codes import ERROR, NOT_AGREED, NOTHING, REFUSED_THERE
from kquota_spark.cli.quotas.held_quotas import held_notes, held_steps
from kquota_spark.cli.quotas.quota_edits import add_edit_options, carry_out, choices_of
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import quota_value
from kquota_spark.formats.text.person_units import rate_text
from kquota_spark.formats.text.person_values import example_of
from kquota_spark.model.compare.quota_diff import Identity, effect_changes
from kquota_spark.model.compare.quota_tree import quota_type_of
from kquota_spark.model.quotas.entities import AnyEntity, IpEntity
from kquota_spark.model.quotas.ip_quotas import in_spelling_of
from kquota_spark.model.quotas.quota_set import QuotaEdit, QuotaSet, parts_of
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.process.clock import now_ms

COMMANDS = {
    "alter": (
        "quotas",
        "set and remove quotas of one entity in place; its other quotas stay",
        "kquota alter --name user=alice --add producer_byte_rate=2000000 --dry-run",
        "kquota alter --name user=alice --name client-id=etl --delete producer_byte_rate --yes",
    ),
}
CODES = {
    "alter": {ERROR: REFUSED_THERE, NOTHING: NOT_AGREED},
}

_MOST_SHOWN = 3


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `alter`."""
    parser = subparsers.add_parser(
        "alter",
        description="{about}. Values are checked before anything is sent, and shown before and after.",
    )
    add_entity_options(parser, is_filter=False)
    values = parser.add_argument_group(
        "values", "bytes/s, percent of a thread, 1/s: as plain numbers, or as 2MB/s, 1.5MiB/s, 200%%, 10/s"
    )
    values.add_argument("--add", "--add-config", action="append", default=[], metavar="KEY=VALUE,...",
                        help="set a key; may be repeated")  # fmt: skip
    values.add_argument("--delete", "--delete-config", action="append", default=[], metavar="KEY,...",
                        help="remove a key; may be repeated")  # fmt: skip
    add_cluster_options(parser)
    add_edit_options(parser)
    parser.set_defaults(run=run_alter)


def run_alter(options: argparse.Namespace) -> int:
    """Alter the quotas of one entity: compare with the cluster, show the difference, ask, write, report.

    Raises:
        UserError: a key or value that no cluster takes, a key to remove that is not set, or no answer.
    """
    entity = asked_entity(options)
    wanted = _wanted(entity, options.add, options.delete, options.usage)
    with chosen_cluster(options) as cluster:
        quotas = image_of(cluster).quotas
        # If the cluster has the address in another spelling, alter that entry: a second one would overwrite the first.
        [entity] = in_spelling_of({entity: {}}, quotas)
        has = quotas.get(entity, {})
        missing = [key.value for key, value in wanted.items() if value is None and key not in has]
        if missing:
            raise UserError(
                f"{entity}: {', '.join(missing)} cannot be removed, not set there; nothing was sent "
                f"({cluster.origin})"
            )
        asked = [QuotaEdit(entity, key, has.get(key), to) for key, to in wanted.items()]
        edits = [edit for edit in asked if edit.before != edit.after]
        left = {key: value for key, value in {**has, **wanted}.items() if value is not None}
        notes = held_notes(held_steps(settings_beside(options), [entity]), asked, now_ms())
        notes += _fall_backs(edits, quotas, {**quotas, entity: left})
        choices = choices_of(options)
        unchanged = 0 if edits else 1
        return carry_out(
            cluster, edits, choices, command="kquota alter", unchanged=unchanged, notes=notes, before=quotas,
            where=cluster_words(options),
        )  # fmt: skip


def _fall_backs(edits: Sequence[QuotaEdit], before: QuotaSet, after: QuotaSet) -> Iterator[str]:
    """What governs after a key is removed: one sentence per kind of client that it governed."""
    removed = [edit for edit in edits if edit.after is None]
    effects = effect_changes(before, after) if removed else []
    for edit in removed:
        quota_type = quota_type_of(edit.key)
        changes = [
            change
            for change in effects
            if change.quota_type == quota_type and change.before.rule == edit.entity
        ]
        for change in changes[:_MOST_SHOWN]:
            who, found = _who(change.identity, edit.entity), change.after
            if found.rule is None:
                yield f"{edit.key.value}: nothing limits {who} then"
            else:
                yield f"{edit.key.value}: {who} now falls to {found.rule}: {rate_text(quota_type, found.limit)}"
        if not changes:
            yield f"{edit.key.value}: nobody gets another limit or bucket by that"
        elif len(changes) > _MOST_SHOWN:
            yield f"{edit.key.value}: ... and {len(changes) - _MOST_SHOWN:,} more kinds of clients"


def _who(identity: Identity, entity: AnyEntity) -> str:
    """Some clients that an entity names, in words; parts that the entity does not have are left out."""
    names = dict(zip(("user", "client-id", "ip"), identity, strict=True))
    has = {kind.value for kind in parts_of(entity)}
    words = []
    for kind, name in names.items():
        if name:
            words.append(f"{kind} {name}")
        elif name == "":
            words.append(f"an empty {kind}")
        elif kind in has:
            words.append(f"any {kind} without a rule of its own")
    return " with ".join(words)


def _wanted(
    entity: AnyEntity, added: Sequence[str], deleted: Sequence[str], wrong_usage: Callable[[str], object]
) -> dict[AnyKey, float | None]:
    """The new values by key; None removes a key. A key that is named twice is a usage error."""
    pairs: list[tuple[str, str | None]] = []
    for text in (part for given in added for part in given.split(",")):
        key, equals, value = text.strip().partition("=")
        if not equals:
            wrong_usage(f"--add: {text!r}, expected KEY=VALUE, e.g. producer_byte_rate=1000000")
        pairs.append((key.strip(), value.strip()))
    pairs += [(part.strip(), None) for given in deleted for part in given.split(",")]
    if not pairs:
        wrong_usage("nothing to alter: give --add KEY=VALUE or --delete KEY")
    names = [key for key, _ in pairs]
    for key in names:
        if names.count(key) > 1:
            wrong_usage(f"{key} is named twice, expected once")
    require_name(entity, is_set=bool(added))
    keys = [(_key(entity, key), value) for key, value in pairs]
    return {key: None if value is None else _value(entity, key, value) for key, value in keys}


def _key(entity: AnyEntity, text: str) -> AnyKey:
    keys = {key.value: key for key in (IpQuotaKey if isinstance(entity, IpEntity) else QuotaKey)}
    if text not in keys:
        one_of = "one of " if len(keys) > 1 else ""
        raise UserError(f"{entity}: no key {text!r}, expected {one_of}{', '.join(keys)}")
    return keys[text]


def _value(entity: AnyEntity, key: AnyKey, text: str) -> float:
    """A value that every cluster takes. KRaft refuses the others, and brokers with ZooKeeper would misread them."""
    try:
        return quota_value(key, text, is_above_zero=True)
    except ValueError as error:
        problem = f"expected {error}, e.g. {example_of(key)}; nothing was sent"
        raise UserError(f"{entity}: {key.value}={text}: {problem}") from None
