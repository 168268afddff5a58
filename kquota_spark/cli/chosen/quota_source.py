"""Options that choose the source of the quotas, add quotas to them, and describe the brokers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from kquota_spark.cli.chosen.cluster_choice import chosen_address
from kquota_spark.cli.options import add_settings_options, settings_of, whole_number
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import quota_value
from kquota_spark.formats.text.person_values import example_of
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.measure.sampled_rate import RingVariant
from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.quotas.backends import ClusterAddress

if TYPE_CHECKING:
    from kquota_spark.quotas.sources import Client, QuotaHistory

_PARTS = ("user", "client-id")
_KEYS = {key.value: key for key in QuotaKey}
_EXAMPLE = "user=bob,producer_byte_rate=250000"


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add --config, --tables and the other sources of quotas."""
    add_settings_options(parser)
    sources = parser.add_argument_group(
        "quotas from", "one of these or --tables; by default the settings' tables, else their quotas.source"
    )
    sources.add_argument("--quotas", type=Path, metavar="FILE", help="a quotas.yaml with validity")
    sources.add_argument("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="a running ZooKeeper: as of now")
    sources.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a running Kafka: as of now")
    sources.add_argument("--context", metavar="NAME", help="a running cluster saved by kquota context add")
    sources.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="with --bootstrap-server: client properties, e.g. security.protocol",
    )


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Add options that replace settings of the brokers; quotas alone do not contain these."""
    brokers = parser.add_argument_group("brokers", "instead of the settings' own")
    brokers.add_argument(
        "--broker-version", metavar="V", help="3.7 and older keep an older sample ring (default 3.9)"
    )
    brokers.add_argument("--window-num", type=whole_number, metavar="N", help="quota.window.num (default 11)")
    brokers.add_argument(
        "--window-size-seconds", type=whole_number, metavar="S", help="quota.window.size.seconds (default 1)"
    )
    brokers.add_argument(
        "--producer-default", type=whole_number, metavar="B/S", help="quota.producer.default, up to 2.8"
    )
    brokers.add_argument(
        "--consumer-default", type=whole_number, metavar="B/S", help="quota.consumer.default, up to 2.8"
    )
    brokers.add_argument(
        "--callback", metavar="MODULE:CLASS", help="the brokers' client.quota.callback.class, in Python"
    )
    brokers.add_argument(
        "--callback-option", action="append", default=[], metavar="K=V", help="handed to its configure()"
    )


def settings_with_broker_of(options: argparse.Namespace) -> Settings:
    """The settings, with the values of the options of `add_broker_options` in place.

    Raises:
        UserError: the settings cannot be read, or an option has an invalid value.
    """
    settings = settings_of(options)
    if any(number is not None and number < 1 for number in (options.window_num, options.window_size_seconds)):
        raise UserError("--window-num and --window-size-seconds: expected 1 or more")
    given = {
        "version": options.broker_version,
        "quota_window_num": options.window_num,
        "quota_window_size_seconds": options.window_size_seconds,
        "quota_producer_default": options.producer_default,
        "quota_consumer_default": options.consumer_default,
    }
    broker = settings.broker.changed(**{k: v for k, v in given.items() if v is not None})
    try:
        RingVariant.of_version(broker.version)
    except ValueError as error:
        named = "broker.version" if options.broker_version is None else "--broker-version"
        raise UserError(f"{named}: {broker.version!r}, expected e.g. 3.9 or 3.7.2") from error
    quotas, callback_options = settings.quotas, dict(map(_pair, options.callback_option))
    if options.callback is not None:  # another callback has its own options
        quotas = quotas.changed(callback=options.callback, callback_options=callback_options)
    elif callback_options:
        quotas = quotas.changed(callback_options={**quotas.callback_options, **callback_options})
    return settings.changed(broker=broker, quotas=quotas)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UserError(f"--callback-option: {text!r}, expected name=value")
    return name, value


@dataclass(frozen=True, slots=True)
class QuotaSource:
    """Where quotas are read; by default the settings' own source."""

    file: Path | None = None
    address: ClusterAddress | None = None
    has_tables: bool = False


def source_of(options: argparse.Namespace) -> QuotaSource:
    """The source that the options of `add_source_options` name.

    Raises:
        UserError: several sources are named, or a cluster has no address.
    """
    named = ("quotas", "zookeeper", "bootstrap_server", "context", "tables")
    given = [f"--{name.replace('_', '-')}" for name in named if getattr(options, name) is not None]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)}: quotas come from one source, name one of them")
    if options.command_config is not None and options.bootstrap_server is None:
        raise UserError("--command-config: only with --bootstrap-server")
    is_cluster = bool(given) and options.quotas is None and options.tables is None
    return QuotaSource(
        options.quotas, chosen_address(options) if is_cluster else None, options.tables is not None
    )


def read_quotas(
    settings: Settings, source: QuotaSource, of: Client | None = None, *, apply_lag_ms: int = 0
) -> QuotaHistory:
    """The quotas of a source.

    Args:
        settings: with the options applied.
        source: where to read them.
        of: read from a running cluster only the quotas that can govern this client; None for all.
        apply_lag_ms: only for a file: delay until brokers apply an edit, ms.

    Raises:
        UserError: the source cannot be read.
    """
    from kquota_spark.quotas import sources as quota_sources

    if source.file is not None:
        return quota_sources.from_file(source.file, apply_lag_ms=apply_lag_ms)
    if (address := source.address) is not None:
        if not address.bootstrap_servers:
            return quota_sources.from_zookeeper(address.quotas, of, named=address.named.servers)
        timeout_ms = address.quotas.connect_timeout
        return quota_sources.from_admin(
            address.bootstrap_servers, address.properties, of, timeout_ms=timeout_ms, named=address.named
        )
    if source.has_tables:
        return quota_sources.from_tables(settings)
    return quota_sources.from_settings(settings, of)


def leader_notes(history: QuotaHistory, time_ms: int) -> list[str]:
    """Notes if a callback answers for a moment at which the source does not know the leaders of partitions."""
    if history.leaders.at(time_ms).leaders:
        return []
    return ["leaders of partitions are not known here: the callback is asked without them"]


def governor_of(settings: Settings, history: QuotaHistory) -> AbstractContextManager[Governor]:
    """The governor for these quotas; a callback is closed after the block.

    Raises:
        UserError: the callback does not exist.
    """
    from kquota_spark.config.governor import opened_governor

    return opened_governor(settings, history.book, history.leaders)


def added_quotas(texts: Iterable[str]) -> dict[Entity, dict[AnyKey, float]]:
    """The values of --add by entity; of several values for the same key the last one counts.

    Args:
        texts: each names a user, a client id or both (a name or `<default>`), and one or more values.

    Raises:
        UserError: a text does not have that form.
    """
    found: dict[Entity, dict[AnyKey, float]] = {}
    for text in texts:
        parts, values = _read(text)
        if not parts or not values:
            missing = "user or client-id" if not parts else f"quota, one of {', '.join(_KEYS)}"
            raise UserError(f"--add {text}: names no {missing}, expected e.g. {_EXAMPLE}")
        entity = Entity(parts.get("user"), parts.get("client-id"))
        found.setdefault(entity, {}).update(values)
    return found


def _read(text: str) -> tuple[dict[str, str | Default], dict[AnyKey, float]]:
    parts: dict[str, str | Default] = {}
    values: dict[AnyKey, float] = {}
    for piece in text.split(","):
        name, equals, given = piece.partition("=")
        if not equals or not given:
            raise UserError(f"--add {text}: {piece!r} is no name=value, expected e.g. {_EXAMPLE}")
        if name in parts or _KEYS.get(name) in values:
            raise UserError(f"--add {text}: {name} twice, expected e.g. {_EXAMPLE}")
        if name in _PARTS:
            parts[name] = DEFAULT if given == DEFAULT.value else given
        elif name in _KEYS:
            key = _KEYS[name]
            try:
                values[key] = quota_value(key, given)
            except ValueError as error:
                problem = f"{name} is {given!r}, expected {error}, e.g. {example_of(key)}"
                raise UserError(f"--add {text}: {problem}") from None
        else:
            near = get_close_matches(name, [*_PARTS, *_KEYS], n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join((*_PARTS, *_KEYS))}"
            raise UserError(f"--add {text}: unknown name {name!r}, {hint}")
    return parts, values
