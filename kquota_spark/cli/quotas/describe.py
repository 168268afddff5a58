"""`kquota describe`: the quotas of a running cluster; it takes the options of KIP-546 and of kafka-configs.sh."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kquota_spark.cli.chosen.cluster_choice import add_cluster_options, chosen_cluster, image_of
from kquota_spark.cli.chosen.entity_options import add_entity_options, asked_filter
from kquota_spark.cli.exit_codes import DONE
from kquota_spark.cli.near_names import near
from kquota_spark.cli.options import add_output_options, limit_of
from kquota_spark.cli.quotas.quota_edits import entities_text, exact_text
from kquota_spark.cli.text.page import print_as_it_is
from kquota_spark.cli.text.render import FORMATS, Report, Row, Shown, show
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import rate_text
from kquota_spark.model.compare.quota_tree import quota_type_of
from kquota_spark.model.quotas.entities import AnyEntity, Default
from kquota_spark.model.quotas.quota_set import EntityFilter, QuotaSet, parts_of

COMMANDS = {
    "describe": (
        "quotas",
        "the quotas of a running cluster that match, all without a name",
        "kquota describe --bootstrap-server localhost:9092",
        "kquota describe --name user=alice --any client-id --context prod",
    ),
}
CODES = {
    "describe": {DONE: "done, also if nothing matches"},
}

_COLUMNS = ("entity", "level", "parts", "key", "quota_type", "value")
_SHOWN = (
    Shown("entity", lambda row: entity_text(row["entity"]), is_text=True, keep=24),
    Shown("key", lambda row: row["key"], is_text=True, keep=24),
    Shown("value", lambda row: exact_text(row["value"])),
    Shown("", lambda row: rate_text(row["quota_type"], row["value"])),
)
_SENTENCES = "kafka-configs"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `describe`."""
    parser = subparsers.add_parser("describe")
    add_entity_options(parser, is_filter=True)
    add_cluster_options(parser)
    add_output_options(parser, (*FORMATS, _SENTENCES))
    parser.set_defaults(run=run_describe)


def run_describe(options: argparse.Namespace) -> int:
    """Show the matching quotas.

    Raises:
        UserError: the cluster does not answer, or the sentences of kafka-configs.sh cannot contain a name.
    """
    wanted = asked_filter(options)
    with chosen_cluster(options) as cluster:
        quotas, origin = image_of(cluster).quotas, cluster.origin
    entities = list(wanted.among(quotas))
    if options.output == _SENTENCES:
        print_as_it_is(_sentences({entity: quotas[entity] for entity in entities}))
        return 0
    rows = [row for entity in entities for row in _rows(entity, quotas)]
    limit = limit_of(options)
    more = f", {limit:,} values shown: --limit 0 shows all" if limit and len(rows) > limit else ""
    where = terminal_text(origin)
    report = Report(
        "kquota describe",
        _COLUMNS,
        rows[:limit],
        _SHOWN,
        footer=f"{entities_text(len(entities))} of {where}{more}",
        when_empty=f"no quotas match, of {len(quotas):,} entities that have any ({where}){_meant(wanted, quotas)}",
        envelope={"cluster": origin},
    )
    show(report, options.output)
    return 0


def _meant(wanted: EntityFilter, quotas: QuotaSet) -> str:
    """`; did you mean user=alice?` for names that no quota has but that are similar to a known name; else empty."""
    hints = []
    for kind, name in wanted.parts.items():
        known = {other for each in quotas if isinstance(other := parts_of(each).get(kind), str)}
        if isinstance(name, str) and name not in known:
            hints += [f"{kind.value}={other}" for other in near(name, sorted(known))]
    return terminal_text(f"; did you mean {','.join(hints)}?") if hints else ""


def _rows(entity: AnyEntity, quotas: QuotaSet) -> Iterator[Row]:
    parts = [
        {"type": kind.value, "name": None if isinstance(name, Default) else name}
        for kind, name in parts_of(entity).items()
    ]
    for key in sorted(quotas[entity], key=lambda key: key.value):
        yield {
            "entity": str(entity),
            "level": entity.level,
            "parts": parts,
            "key": key.value,
            "quota_type": quota_type_of(key),
            "value": quotas[entity][key],
        }


def _sentences(quotas: QuotaSet) -> str:
    """The quotas as kafka-configs.sh prints them. Its lines about SCRAM are left out: they are not quotas."""
    from kquota_spark.formats.exchange import kafka_configs

    try:
        return kafka_configs.write(quotas)
    except ValueError as error:
        raise UserError(f"--output {_SENTENCES}: {error}") from error
