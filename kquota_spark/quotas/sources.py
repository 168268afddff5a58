"""The sources of quotas for commands without Spark: a file, ZooKeeper, the Admin API, the tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kquota_spark.config.settings import Quotas, Settings
from kquota_spark.enforce.ports import Image
from kquota_spark.errors import UserError
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.formats.znodes.nodes import REQUIRED_ROOTS
from kquota_spark.kafka.quota_admin import OF_SETTINGS, Named, QuotaAdmin
from kquota_spark.model.quotas.quota_callback import LeaderBook
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import candidates
from kquota_spark.model.quotas.rules import BEGINNING_MS, END_MS, RuleBook, RulePeriod, rule_periods
from kquota_spark.process.listeners import require_listener
from kquota_spark.quotas.stored import stored_leaders
from kquota_spark.store.quota_rows import cluster_in, known_through_ms, rule_period_of, rules_of_clients
from kquota_spark.store.reading import query
from kquota_spark.store.storage import is_there

_RULES = f"""
select cluster_id, level, entity, {", ".join(key.value for key in QuotaKey)}, epoch_ms(valid_from) as valid_from,
       epoch_ms(valid_to) as valid_to, version, epoch_ms(certain_from) as certain_from,
       epoch_ms(known_through) as known_through
from quota_rules
"""  # noqa: S608 - names of ours


class Client(NamedTuple):
    """The user and client id that a request for quotas is about."""

    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """Quotas over time, as far as a source has them.

    Attributes:
        origin: name of the source, for messages.
        book: the quotas; without `has_history` the present ones, as if they had always been in force.
        has_history: whether the source has past quotas.
        known_through_ms: epoch ms up to which edits are known; None if all are known up to now.
        cluster_id: cluster of these quotas in the tables; None for another source.
        problems: content that is not valid quotas, each with its place.
        leaders: leaders of partitions over time, for a callback; only the tables have them.
    """

    origin: str
    book: RuleBook
    has_history: bool = True
    known_through_ms: int | None = None
    cluster_id: str | None = None
    problems: tuple[str, ...] = ()
    leaders: LeaderBook = field(default_factory=LeaderBook)


def from_file(path: Path, *, apply_lag_ms: int = 0) -> QuotaHistory:
    """The quotas of a quota file over time; each edit takes effect `apply_lag_ms` after its time.

    Raises:
        UserError: see `read_quota_file`.
    """
    return QuotaHistory(
        f"file {path}", RuleBook(rule_periods(read_quota_file(path), apply_lag_ms=apply_lag_ms))
    )


def from_zookeeper(
    quotas: Quotas, of: Client | None = None, *, named: str = "quotas.zookeeper_connect"
) -> QuotaHistory:
    """The present quotas in a running ZooKeeper.

    Args:
        quotas: address and time limits.
        of: read only the quotas that can govern this client, which is fast with any number of users; None for all.
        named: name of the address in errors.

    Raises:
        UserError: it does not answer within `connect_timeout`, or does not let us read its quotas.
    """
    from kquota_spark.quotas.zookeeper_cluster import zookeeper_image
    from kquota_spark.zookeeper.client import require_zookeeper

    require_zookeeper(quotas, named)
    image = zookeeper_image(quotas, of, named=named)
    for root in REQUIRED_ROOTS:
        if root in image.unreadable:
            advice = f"check the chroot of {named} and the rights of its nodes"
            raise UserError(f"{image.origin}: {image.unreadable[root]}: {advice}")
    return _of_now(image)


def from_admin(
    bootstrap_servers: str,
    properties: Mapping[str, str],
    of: Client | None = None,
    *,
    timeout_ms: int,
    named: Named = OF_SETTINGS,
) -> QuotaHistory:
    """The present quotas of a running cluster, by its Admin API (KIP-546).

    Args:
        bootstrap_servers: `host:port,host:port`.
        properties: client properties for the login.
        of: read only the quotas that can govern this client; None for all.
        timeout_ms: limit of connecting, and again of each request.
        named: settings that gave the address and the login, for errors.

    Raises:
        UserError: no broker answers in time, or it refuses us.
    """
    with closing(QuotaAdmin(bootstrap_servers, properties, timeout_ms=timeout_ms, named=named)) as admin:
        require_listener("Kafka", bootstrap_servers, named.servers)
        found = admin.quota_set(None if of is None else candidates(*of))
    return _of_now(Image(admin.where, found))


def from_tables(settings: Settings) -> QuotaHistory:
    """The quotas in the table `quota_rules`, of the cluster in the settings, or of the only one in the table.

    Raises:
        UserError: there is no such table, or it has no rows of the cluster.
    """
    rows = query(settings, ["quota_rules"], _RULES).dicts()
    where = f"table quota_rules under {settings.tables}"
    cluster_id = cluster_in({row["cluster_id"] for row in rows}, settings, where)
    mine = [row for row in rows if row["cluster_id"] == cluster_id]
    known_ms = known_through_ms(mine)
    known_ms = BEGINNING_MS if known_ms is None else known_ms
    # Leaders that the watcher has polled; only a callback asks for them.
    has_leaders = bool(settings.quotas.callback)
    return QuotaHistory(
        where,
        RuleBook(map(rule_period_of, rules_of_clients(mine))),
        known_through_ms=None if known_ms >= END_MS else known_ms,
        cluster_id=cluster_id,
        leaders=LeaderBook(stored_leaders(settings.changed(cluster_id=cluster_id)) if has_leaders else ()),
    )


def from_settings(settings: Settings, of: Client | None = None) -> QuotaHistory:
    """The quotas from the source in the settings: the tables if they exist, otherwise `quotas.source`.

    Raises:
        UserError: the source cannot be read.
    """
    if is_there(settings, "quota_rules"):
        return from_tables(settings)
    if settings.quotas.source == "file":
        if not settings.quotas.file:
            raise UserError(
                "quotas.file: missing, expected the path of a quota file, as quotas.source is file"
            )
        return from_file(Path(settings.quotas.file))
    is_by_zookeeper = settings.quotas.source == "zookeeper"
    # The built-in addresses are of this machine: no cluster is guessed.
    if not (
        "zookeeper_connect" in settings.quotas.given
        if is_by_zookeeper
        else "bootstrap_servers" in settings.kafka.given
    ):
        raise UserError(
            f"which quotas: no table quota_rules under {settings.tables}, and no cluster is named: "
            "give --tables, --quotas, --zookeeper, --bootstrap-server or --context"
        )
    return from_cluster(settings, of)


def from_cluster(settings: Settings, of: Client | None = None) -> QuotaHistory:
    """The present quotas of the cluster, from `quotas.source`: ZooKeeper or the brokers.

    Raises:
        UserError: it does not answer, or the source is a file.
    """
    quotas, kafka = settings.quotas, settings.kafka
    if quotas.source == "zookeeper":
        return from_zookeeper(quotas, of)
    if quotas.source == "admin":
        return from_admin(kafka.bootstrap_servers, kafka.options, of, timeout_ms=quotas.connect_timeout)
    raise UserError("quotas.source: a file is no cluster: expected zookeeper or admin")


def require_source(settings: Settings) -> None:
    """Check that the server of `quotas.source` accepts a connection; a file has no server.

    Raises:
        UnreachableError: no server listens there.
    """
    from kquota_spark.zookeeper.client import require_zookeeper

    if settings.quotas.source == "zookeeper":
        require_zookeeper(settings.quotas)
    elif settings.quotas.source == "admin":
        require_listener("Kafka", settings.kafka.bootstrap_servers, OF_SETTINGS.servers)


def _of_now(image: Image) -> QuotaHistory:
    """A history with only the present quotas."""
    rules = [
        RulePeriod(entity, values, BEGINNING_MS, None, image.versions.get(entity, 0))
        for entity, values in image.quotas.items()
    ]
    problems = {**image.problems, **image.unreadable}
    shown = tuple(f"{place}: {problem}" for place, problem in sorted(problems.items()))
    return QuotaHistory(image.origin, RuleBook(rules), has_history=False, problems=shown)
