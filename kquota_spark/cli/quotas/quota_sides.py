"""Quotas to hold against each other: of a file in any format, a saved context, a chosen cluster, the tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from kquota_spark.cli.chosen.cluster_choice import address_of_context, chosen_cluster, opened_cluster
from kquota_spark.cli.options.options import settings_of
from kquota_spark.cli.quotas.import_quotas import file_text, quotas_in
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.process.clock import now_ms

_CLUSTER_OPTIONS = ("context", "bootstrap_server", "zookeeper")


class Side(NamedTuple):
    """A set of quotas, and where it is from as people call it; `known_through_ms` if later edits are not in it.

    `is_stale`: nobody has followed the quotas up to the moment that they are asked for.
    """

    origin: str
    quotas: QuotaSet
    known_through_ms: int | None = None
    is_stale: bool = False


def named_side(text: str) -> Side:
    """The quotas of a file, or of a saved context.

    Raises:
        UserError: it is neither, or cannot be read.
    """
    path = Path(text)
    try:
        is_file = path.exists() and not path.is_dir()
    except OSError as error:
        raise UserError(f"{text[:200]}: cannot be read: {error.strerror}") from error
    if is_file:
        return file_side(path)
    try:
        address = address_of_context(text)
    except UserError as error:
        raise UserError(f"{text}: no such file, and {error}") from error
    with opened_cluster(address) as cluster:
        return Side(cluster.origin, cluster.read())


def file_side(path: Path) -> Side:
    """The quotas of a file, whose format is told by its content.

    Raises:
        UserError: it cannot be read, is in no format that is known, or has problems, one a line.
    """
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    text = file_text(str(path), str(path))
    # No quotas at all leave no sign of a format.
    formats = [FORMATS["declared"]] if text.strip() == "[]" else guess(text, path.name)
    if len(formats) != 1:
        names = ", ".join(each.name for each in formats or FORMATS.values())
        raise UserError(f"{path}: {'could be any of' if formats else 'is none of'} the formats {names}")
    return Side(f"file {path}", quotas_in(formats[0], text, str(path)))


def chosen_side(options: argparse.Namespace) -> Side:
    """The cluster of `add_cluster_options`; with --tables or --at instead of one, the table `quota_rules` as of then.

    Raises:
        UserError: it does not answer, several are named, or there is nothing in the tables.
    """
    has_cluster = has_cluster_option(options)
    if has_cluster and options.at is not None:
        raise UserError("--at: a running cluster tells only what holds now: leave one of them out")
    if has_cluster or (options.tables is None and options.at is None):
        with chosen_cluster(options) as cluster:
            return Side(cluster.origin, cluster.read())
    from kquota_spark.quotas.stored import stored_quota_set
    from kquota_spark.store.reading import Tables

    settings = settings_of(options)
    at_ms = now_ms() if options.at is None else options.at.time_ms
    with Tables(settings) as tables:
        stored = stored_quota_set(tables, settings, at_ms)
    known_ms = stored.known_through_ms
    behind_ms = known_ms if known_ms is not None and known_ms < at_ms else None
    as_of = "" if options.at is None else f" as of {iso_time(at_ms)}"
    is_stale = behind_ms is not None and at_ms - behind_ms > settings.quotas.stale_after_ms
    return Side(f"{stored.origin}{as_of}", stored.quotas, behind_ms, is_stale)


def has_cluster_option(options: argparse.Namespace) -> bool:
    """Whether an option names a running cluster."""
    return any(getattr(options, name) is not None for name in _CLUSTER_OPTIONS)
