"""Quotas of a cluster, exported in each format, imported into an empty one of the other mode: everybody gets the same.

The brokers themselves tell what they hold, before and after; the grid of clients is resolved from what they tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from kquota_spark.config.settings import Quotas
from kquota_spark.embedded.cluster import Cluster
from kquota_spark.enforce import ports
from kquota_spark.formats.exchange import NAMES
from kquota_spark.kafka.quota_admin import Named
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity, Name
from kquota_spark.model.quotas.ip_quotas import resolve_ip
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.model.quotas.resolve import resolve
from kquota_spark.quotas import zookeeper_cluster as zookeeper_quotas
from kquota_spark.quotas.admin_cluster import admin_cluster
from tests.support.programs.command_output import run
from tests.support.quotas.cluster_contract import altered
from tests.support.quotas.terraform_shows import terraform_shows

PRODUCE, FETCH, REQUEST, MUTATION = QuotaKey
CONNECTIONS = IpQuotaKey.CONNECTION_CREATION_RATE
USERS: tuple[Name, ...] = ("CN=o'neil, OU=a b/é", "CN=app", "1e6", "null", DEFAULT, None)
CLIENTS: tuple[Name, ...] = ('e"t,l:%41+*', DEFAULT, None)
EIGHT_LEVELS = [
    Entity(user, client) for user in USERS for client in CLIENTS if (user, client) != (None, None)
]
IPS = [IpEntity(DEFAULT), IpEntity("10.0.0.1"), IpEntity("::1")]
IN_SOME_FORMATS_ONLY: dict[AnyEntity, set[str]] = {
    Entity("<default>", "<default>"): {"declared", "rpk"},
    Entity("e\u0301"): {"terraform"},  # not in Unicode's form NFC
    Entity(None, "two\nlines"): {"kafka-configs"},
}
"""Who has to be left out, and where."""


def _quotas() -> QuotaSet:
    """Another value for each, so that none passes for another; every key in some, and never in all."""
    quotas: dict[AnyEntity, dict[AnyKey, float]] = {}
    for number, entity in enumerate([*EIGHT_LEVELS, *IN_SOME_FORMATS_ONLY], start=1):
        values = {PRODUCE: 1e7 + number, FETCH: 2e6 + number, REQUEST: 12.0 + number, MUTATION: number / 8}
        dropped = [*QuotaKey][number % 4]
        quotas[entity] = {key: value for key, value in values.items() if key is not dropped}
    quotas[Entity("bob")] = {PRODUCE: 1_048_576.0, REQUEST: 55.0}
    # So many that brokers close none of our own connections: they do it where a second brings more.
    return {**quotas, **{ip: {CONNECTIONS: 3_000.0 + number} for number, ip in enumerate(IPS)}}


QUOTAS = _quotas()


class Running(NamedTuple):
    """A cluster as its brokers tell it, and the way that commands take to it: with ZooKeeper, straight there."""

    brokers: ports.Cluster
    way: ports.Cluster
    options: tuple[str, str]

    def fill(self) -> None:
        """Set all of `QUOTAS`."""
        for entity, values in QUOTAS.items():
            # A broker with ZooKeeper refuses ::1: it encodes the colons, and finds no host of that name.
            by = self.way if entity == IpEntity("::1") else self.brokers
            assert altered(by, entity, values) is None, entity

    def clear(self) -> None:
        """Remove all quotas."""
        for entity, values in self.way.image().quotas.items():
            assert altered(self.way, entity, dict.fromkeys(values)) is None, entity
        assert self.brokers.image().quotas == {}


@pytest.fixture(scope="module")
def running(zookeeper_cluster: Cluster, kraft_cluster: Cluster) -> Iterator[dict[str, Running]]:
    """A cluster of each mode, by its name."""
    old, new = zookeeper_cluster, kraft_cluster
    with ExitStack() as stack:
        of_old, of_new = (
            stack.enter_context(
                admin_cluster(
                    each.bootstrap_servers, {}, timeout_ms=30_000, named=Named("--bootstrap-server")
                )
            )
            for each in (old, new)
        )
        nodes = stack.enter_context(
            zookeeper_quotas.zookeeper_cluster(
                Quotas(zookeeper_connect=old.zookeeper_connect), named=Named("--zookeeper")
            )
        )
        yield {
            "zookeeper": Running(of_old, nodes, ("--zookeeper", old.zookeeper_connect)),
            "kraft": Running(of_new, of_new, ("--bootstrap-server", new.bootstrap_servers)),
        }


@pytest.fixture
def clusters(running: dict[str, Running]) -> Iterator[dict[str, Running]]:
    """Both, without any quotas."""
    for each in running.values():
        each.clear()
    yield running


@pytest.mark.parametrize(("source", "target"), [("zookeeper", "kraft"), ("kraft", "zookeeper")])
def test_everybody_gets_the_same_after_a_move(
    clusters: dict[str, Running], source: str, target: str, tmp_path: Path
) -> None:
    before, after = clusters[source], clusters[target]
    before.fill()
    assert before.brokers.image().quotas == QUOTAS
    for name in sorted({*NAMES} - {"kafka-configs-commands"}):
        file = str(tmp_path / name)
        assert run("export", *before.options, "--format", name, "--partial", "--to", file)[0] == 0
        if name == "terraform":  # Terraform applies the file, and shows what it applied
            Path(file).write_text(terraform_shows(Path(file).read_text()))
        code, out, err = run("import", file, *after.options, "--yes")
        assert (code, err) == (0, f"format: {name}, guessed; --format names another\n"), out
        expected = {entity: values for entity, values in QUOTAS.items() if _can_say(name, entity)}
        told = after.brokers.image().quotas
        assert told == expected, name
        assert dict(_governed(told)) == dict(_governed(expected)), name
        assert run("import", file, *after.options)[1].startswith(
            f"nothing to change: {len(expected)} as wanted"
        )
        after.clear()


def _can_say(name: str, entity: AnyEntity) -> bool:
    if name == "strimzi":
        return entity.level == 3 and entity in map(Entity, ("bob", "CN=app", "1e6", "null"))
    if name == "terraform" and entity.level in (1, 2, 4, 5):
        return False  # pairs
    return name not in IN_SOME_FORMATS_ONLY.get(entity, set())


def _governed(quotas: QuotaSet) -> Iterator[tuple[tuple[str, ...], object]]:
    """Limit, level and bucket of each client and type; of addresses the limit and whose it is."""
    users = [*{entity.user for entity in QUOTAS if isinstance(entity, Entity)} - {None, DEFAULT}, "unseen"]
    clients = [
        *{entity.client_id for entity in QUOTAS if isinstance(entity, Entity)} - {None, DEFAULT},
        "unseen",
        "",
    ]
    for user, client, key in product(map(str, users), map(str, clients), QuotaKey):
        found = resolve(user, client, key, quotas.get)
        yield (user, client, key.value), (found.limit, found.level, found.bucket)
    for ip in ("10.0.0.1", "::1", "10.9.9.9"):
        yield (ip,), resolve_ip(ip, lambda entity: quotas.get(entity, {}).get(CONNECTIONS))


def test_a_cluster_that_refuses_some_says_which_and_gets_the_others(
    clusters: dict[str, Running], tmp_path: Path
) -> None:
    """KRaft takes no quota of 0 (KAFKA-14943) and no host that it cannot resolve."""
    file = tmp_path / "quotas.txt"
    file.write_text(
        "Quota configs for user-principal 'zero' are producer_byte_rate=0.0\n"
        "Quota configs for user-principal 'one' are producer_byte_rate=1.0\n"
        "Quota configs for ip 'no-such-host.invalid' are connection_creation_rate=1.0\n"
    )
    kraft = clusters["kraft"]
    for way, word in (("--dry-run", "would be applied"), ("--yes", "applied")):
        code, out, _ = run("import", str(file), *kraft.options, way)
        assert code == 1
        assert [line.split("  ")[-1].strip() for line in out.splitlines()[1:4]] == [
            word,
            "refused",
            "refused",
        ]
        assert "users/zero: refused: " in out
        assert kraft.brokers.image().quotas == ({} if way == "--dry-run" else {Entity("one"): {PRODUCE: 1.0}})


def test_replacing_leaves_exactly_the_file(clusters: dict[str, Running], tmp_path: Path) -> None:
    file = tmp_path / "quotas.txt"
    file.write_text("Quota configs for user-principal 'a' are producer_byte_rate=7.0\n")
    for running in clusters.values():
        for entity in (Entity("a"), Entity("a", "b"), IpEntity("10.0.0.1")):
            key: AnyKey = CONNECTIONS if isinstance(entity, IpEntity) else FETCH
            assert altered(running.brokers, entity, {key: 5.0}) is None
        assert run("import", str(file), *running.options, "--replace", "--yes")[0] == 0
        assert running.brokers.image().quotas == {Entity("a"): {PRODUCE: 7.0}}
