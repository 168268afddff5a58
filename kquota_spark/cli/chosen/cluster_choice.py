"""The running cluster that a command works on.

One of --bootstrap-server, --zookeeper and --context names it. Otherwise --config names it by its `quotas.source`.
Otherwise it is the cluster of the context in use, or of conf/kquota.yaml in the working directory. If both exist, the
command reports an error: it is safer to ask than to set a quota on the wrong cluster.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from kquota_spark.cli.options import DEFAULT_CONFIG, add_config_option, settings_of
from kquota_spark.cli.settings_file import settings_from
from kquota_spark.cli.text.page import print_line
from kquota_spark.config.contexts import Context, contexts_file, load_contexts
from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.enforce.ports import Cluster, Image
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.kafka.client_properties import read_properties
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.process.listeners import require_ports
from kquota_spark.quotas.backends import ClusterAddress, opened_cluster


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a cluster."""
    group = parser.add_argument_group(
        "cluster", "one of these; else --config, the context in use, or conf/kquota.yaml of this directory"
    )
    group.add_argument("--context", metavar="NAME", help="as saved by kquota context add")
    group.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="its brokers: the Admin API, with KRaft or ZooKeeper"
    )
    group.add_argument(
        "--command-config", type=Path, metavar="FILE", help="with --bootstrap-server: client properties"
    )
    group.add_argument(
        "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="its ZooKeeper: brokers of any age, even stopped"
    )
    add_config_option(parser)


def chosen_cluster(options: argparse.Namespace) -> AbstractContextManager[Cluster]:
    """A connection to the cluster that the options of `add_cluster_options` choose; it is closed after the block.

    Raises:
        UserError: no cluster or several are named, or it does not answer.
    """
    return opened_cluster(chosen_address(options))


def image_of(cluster: Cluster) -> Image:
    """All quotas of a cluster now. Content that brokers do not read as quotas is reported on standard error.

    Raises:
        UserError: the cluster does not answer, or does not let us read all of it.
    """
    image = cluster.image()
    for place, problem in sorted(image.problems.items()):
        print_line(f"kquota: note: {terminal_text(f'{place}: {problem}')}", sys.stderr)
    return image


def named_clusters(options: argparse.Namespace) -> list[str]:
    """The given options that name a running cluster."""
    names = ("context", "bootstrap_server", "zookeeper")
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]


def cluster_words(options: argparse.Namespace) -> list[str]:
    """Options that name the same cluster again, also after another context is in use.

    Raises:
        UserError: the file of contexts cannot be read.
    """
    names = ("context", "bootstrap_server", "command_config", "zookeeper", "config")
    given = [(name.replace("_", "-"), getattr(options, name)) for name in names]
    if all(value is None for _, value in given):
        in_use = load_contexts(contexts_file(os.environ)).in_use
        given = [("context", in_use)] if in_use else [("config", DEFAULT_CONFIG)]
    return [word for name, value in given if value is not None for word in (f"--{name}", os.fspath(value))]


def chosen_address(options: argparse.Namespace) -> ClusterAddress:
    """The address of the cluster that the options choose.

    Raises:
        UserError: no cluster or several are named, or a file cannot be read.
    """
    given = named_clusters(options)
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)}: name one cluster")
    if options.command_config is not None and options.bootstrap_server is None:
        raise UserError("--command-config: only with --bootstrap-server")
    if options.bootstrap_server is not None:
        properties = {} if options.command_config is None else read_properties(options.command_config)
        named = Named("--bootstrap-server", "--command-config", "--zookeeper")
        return of_brokers(settings_of(options).quotas, options.bootstrap_server, properties, named)
    if options.zookeeper is not None:
        quotas = settings_of(options).quotas.changed(zookeeper_connect=options.zookeeper)
        return ClusterAddress(quotas, Named("--zookeeper", instead="--bootstrap-server"))
    if options.context is not None:
        return address_of_context(options.context, options.config)
    if options.config is not None:
        return _of_settings(settings_from(options.config, None))
    return _unnamed()


def settings_beside(options: argparse.Namespace) -> Settings | None:
    """The settings for the cluster of the options; their tables hold its history. None if there are no settings.

    They come from --config, else from the context, else from the working directory. A context takes those of the
    working directory only if they name the same cluster by its address.

    Raises:
        UserError: a file cannot be read.
    """
    if options.config is not None:
        return settings_from(options.config, None)
    has_address = options.bootstrap_server is not None or options.zookeeper is not None
    name = options.context
    if name is None and not has_address:
        name = load_contexts(contexts_file(os.environ)).in_use or None
    if name is not None:
        return settings_of_context(name)
    return settings_from(DEFAULT_CONFIG, None) if DEFAULT_CONFIG.exists() else None


def settings_of_context(name: str) -> Settings | None:
    """The settings file of a saved context, loaded, else that of the working directory if it is of the same cluster.

    Use them only for what the tables hold about the cluster: a login of the working directory may be for another.

    Returns:
        The settings; None if there are none of this cluster.

    Raises:
        UserError: no context has this name, or its file cannot be read.
    """
    context = saved_context(name)
    if context.config:
        return settings_from(Path(context.config), None)
    if not DEFAULT_CONFIG.exists():
        return None
    try:
        found = settings_from(DEFAULT_CONFIG, None, is_quiet=True)
        return found if _is_of_address(found, context) else None
    except UserError:
        return None  # the context does not need this file


def _is_of_address(settings: Settings, context: Context) -> bool:
    """Whether settings name the cluster of a context: one server is the same, and for ZooKeeper the chroot too."""
    if settings.quotas.source == "admin":
        own, other = settings.kafka.bootstrap_servers, context.bootstrap_server
    else:
        own, other = settings.quotas.zookeeper_connect, context.zookeeper
    return bool(_servers(own) & _servers(other))


def _servers(address: str) -> set[str]:
    """Each server of an address, with the chroot of ZooKeeper."""
    servers, slash, chroot = address.partition("/")
    return {f"{server.strip()}{slash}{chroot}" for server in servers.split(",") if server.strip()}


def _unnamed() -> ClusterAddress:
    path = contexts_file(os.environ)
    in_use = load_contexts(path).in_use
    if in_use and DEFAULT_CONFIG.exists():
        raise UserError(
            f"which cluster: context {in_use} is in use, and there is {DEFAULT_CONFIG}: say "
            f"--context {in_use} or --config {DEFAULT_CONFIG}"
        )
    if in_use:
        return address_of_context(in_use)
    if DEFAULT_CONFIG.exists():
        return _of_settings(settings_from(DEFAULT_CONFIG, None))
    raise UserError(
        "which cluster: give --bootstrap-server, --zookeeper, --context or --config, or name one by kquota context use"
    )


def address_of_context(name: str, config: Path | None = None) -> ClusterAddress:
    """The address of the cluster of a saved context.

    Args:
        name: of the context.
        config: settings that replace those of the context. The settings of the working directory are never used: they
            may contain the login of another cluster.

    Raises:
        UserError: no context has this name, one of its files cannot be read, or the context and `config` would name
            different clusters.
    """
    context = saved_context(name)
    if config is not None and not (context.bootstrap_server or context.zookeeper):
        raise UserError(
            f"context {name} is {context.address}, and --config {config} another: leave one of them out"
        )
    settings = Settings()
    if config is not None or context.config:
        settings = settings_from(config or Path(context.config), None)
    where = f"context {name}: "
    if context.bootstrap_server:
        properties = read_properties(Path(context.command_config)) if context.command_config else {}
        named = Named(f"{where}bootstrap_server", f"{where}command_config", "--zookeeper")
        return of_brokers(settings.quotas, context.bootstrap_server, properties, named)
    if context.zookeeper:
        quotas = settings.quotas.changed(zookeeper_connect=context.zookeeper)
        return ClusterAddress(quotas, Named(f"{where}zookeeper", instead="--bootstrap-server"))
    return _of_settings(settings)


def saved_context(name: str) -> Context:
    """The context of this name.

    Raises:
        UserError: no context has this name, or the file of contexts cannot be read.
    """
    path = contexts_file(os.environ)
    contexts = load_contexts(path).contexts
    if name not in contexts:
        known = ", ".join(contexts) or "none"
        raise UserError(f"context {name}: not in {path}, which has {known}: add it by kquota context add")
    return contexts[name]


def of_brokers(
    quotas: Quotas, bootstrap_servers: str, properties: Mapping[str, str], named: Named
) -> ClusterAddress:
    """The address of a cluster by its brokers.

    Args:
        quotas: timeouts and login settings.
        bootstrap_servers: `host:port,host:port`.
        properties: client properties for the login, see `client_properties`.
        named: the option or setting that gave the address, for errors.

    Raises:
        UserError: a server has no port.
    """
    require_ports(bootstrap_servers, named.servers)
    return ClusterAddress(quotas, named, bootstrap_servers, properties)


def _of_settings(settings: Settings) -> ClusterAddress:
    quotas, kafka = settings.quotas, settings.kafka
    if quotas.source == "zookeeper":
        _require("zookeeper_connect" in quotas.given, "quotas.zookeeper_connect")
        return ClusterAddress(quotas, Named("quotas.zookeeper_connect", instead="quotas.source: admin"))
    if quotas.source == "admin":
        _require("bootstrap_servers" in kafka.given, "kafka.bootstrap_servers")
        return of_brokers(quotas, kafka.bootstrap_servers, kafka.options, Named())
    raise UserError(
        "quotas.source: a file is no cluster: name one by --bootstrap-server, --zookeeper or --context"
    )


def _require(is_given: bool, address: str) -> None:
    if not is_given:
        raise UserError(
            f"which cluster: the settings do not say {address}, and none is guessed: set it, or give "
            "--zookeeper, --bootstrap-server or --context"
        )
