"""Sets of quotas to compare: of a file in any format, a saved context, a chosen cluster, or the tables."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from kquota_spark.cli.chosen.cluster_choice import (
    address_of_context,
    chosen_cluster,
    image_of,
    named_clusters,
)
from kquota_spark.cli.options import settings_of
from kquota_spark.config.settings import Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.formats.text.person_units import iso_time
from kquota_spark.process.clock import now_ms
from kquota_spark.quotas.any_file import STDIN, name_of, quotas_of_file
from kquota_spark.quotas.backends import opened_cluster


def named_side(text: str, *, has_copies: bool = False) -> Image:
    """The quotas of a file, of standard input (`-`), or of a saved context.

    Args:
        text: the name.
        has_copies: whether to read nodes of ZooKeeper that a KRaft controller writes during a migration.

    Raises:
        UserError: the text names neither, the source cannot be read, or it has problems, one per line.
    """
    if not text:
        raise UserError(f"'': expected a file of quotas, {STDIN} for standard input, or a saved context")
    try:
        is_file = text == STDIN or (Path(text).exists() and not Path(text).is_dir())
    except OSError as error:
        raise UserError(f"{text[:200]}: cannot be read: {error.strerror}") from error
    if is_file:
        return _file_side(text)
    try:
        address = address_of_context(text)
    except UserError as error:
        found = "a folder, expected a file of quotas" if Path(text).is_dir() else "no such file"
        raise UserError(f"{text}: {found}, and {error}") from error
    with opened_cluster(address) as cluster:
        if has_copies and not address.bootstrap_servers:
            from kquota_spark.quotas.zookeeper_cluster import ZooKeeperCluster

            assert isinstance(cluster, ZooKeeperCluster)
            return cluster.copied_image()
        return image_of(cluster)


def _file_side(file: str) -> Image:
    """The quotas of a file or of standard input; the content determines the format."""
    quotas = quotas_of_file(file)
    return Image(name_of(file) if file == STDIN else f"file {file}", quotas)


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
