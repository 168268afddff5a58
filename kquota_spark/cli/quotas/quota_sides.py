"""Sets of quotas to compare: of a file in any format, a saved context, a chosen cluster, or the tables."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.chosen.cluster_choice import (
    address_of_context,
    chosen_cluster,
    image_of,
    named_clusters,
    opened_cluster,
)
from kquota_spark.cli.options import settings_of
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.process.clock import now_ms

if TYPE_CHECKING:
    from kquota_spark.formats.exchange.registry import Format

STDIN = "-"
_MOST_BYTES = 64_000_000
"""Maximum bytes of a text that the formats accept: four bytes per character."""
_MOST_PROBLEMS, _MOST_PROBLEM_CHARACTERS = 60, 400


def named_side(text: str, *, has_copies: bool = False) -> Image:
    """The quotas of a file, of standard input (`-`), or of a saved context.

    Args:
        text: the name.
        has_copies: whether to read nodes of ZooKeeper that a KRaft controller writes during a migration.

    Raises:
        UserError: the text names neither, the source cannot be read, or it has problems, one per line.
    """
    try:
        is_file = text == STDIN or (Path(text).exists() and not Path(text).is_dir())
    except OSError as error:
        raise UserError(f"{text[:200]}: cannot be read: {error.strerror}") from error
    if is_file:
        return _file_side(text)
    try:
        address = address_of_context(text)
    except UserError as error:
        raise UserError(f"{text}: no such file, and {error}") from error
    with opened_cluster(address) as cluster:
        if has_copies and not address.bootstrap_servers:
            from kquota_spark.quotas.zookeeper_cluster import ZooKeeperCluster

            assert isinstance(cluster, ZooKeeperCluster)
            return cluster.copied_image()
        return image_of(cluster)


def _file_side(file: str) -> Image:
    """The quotas of a file or of standard input; the content determines the format."""
    from kquota_spark.formats.exchange.registry import FORMATS, guess

    where = "standard input" if file == STDIN else file
    text = file_text(file, where)
    # An empty list does not show its format.
    formats = [FORMATS["declared"]] if text.strip() == "[]" else guess(text, Path(file).name)
    if len(formats) != 1:
        names = ", ".join(each.name for each in formats or FORMATS.values())
        raise UserError(f"{where}: {'could be any of' if formats else 'is none of'} the formats {names}")
    return Image(where if file == STDIN else f"file {file}", quotas_in(formats[0], text, where))


def chosen_side(options: argparse.Namespace) -> Image:
    """The cluster of the options; with --tables or --at instead, the quotas of the table `quota_rules` at that time.

    Raises:
        UserError: the cluster does not answer, several are named, or the tables are empty.
    """
    clusters = named_clusters(options)
    if clusters and options.at is not None:
        raise UserError("--at: a running cluster has only the quotas of now: leave one of them out")
    if clusters or (options.tables is None and options.at is None):
        with chosen_cluster(options) as cluster:
            return image_of(cluster)
    at_ms = now_ms() if options.at is None else options.at.time_ms
    side = stored_side(settings_of(options, "tables"), at_ms)
    return side if options.at is None else replace(side, origin=f"{side.origin} as of {iso_time(at_ms)}")


def stored_side(settings: Settings, at_ms: int) -> Image:
    """The quotas of the table `quota_rules` at a time.

    Args:
        settings: of the tables.
        at_ms: the time, epoch ms.

    Raises:
        UserError: the tables are empty.
    """
    from kquota_spark.quotas.stored import stored_image
    from kquota_spark.store.reading import Tables

    with Tables(settings) as tables:
        return stored_image(tables, settings, at_ms)


def file_text(file: str, where: str) -> str:
    """The text of a file of quotas.

    Args:
        file: its path; `-` is standard input.
        where: its name in errors.

    Raises:
        UserError: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{where}: larger than {_MOST_BYTES:,} bytes, expected quotas")
        # Line ends stay unchanged: a name may contain a carriage return.
        return data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 at byte {error.start:,}, expected a text") from error


def quotas_in(form: Format, text: str, where: str) -> QuotaSet:
    """The quotas of a text.

    Args:
        form: the format of the text.
        text: the text.
        where: its name in errors.

    Raises:
        UserError: one line per problem.
    """
    try:
        # kquota's own format may contain several periods: use the quotas of now.
        return form.read(text) if form.read_at is None else form.read_at(text, now_ms())
    except ValueError as error:
        problems = str(error).split("\n")
        lines = [f"{where}: {problem[:_MOST_PROBLEM_CHARACTERS]}" for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"{where}: ... and {len(problems) - _MOST_PROBLEMS:,} more problems")
        raise UserError("\n".join(lines)) from error
