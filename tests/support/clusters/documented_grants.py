"""The grants of the page on rights, and giving them to the users of a cluster."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kquota_spark.embedded.cluster import Cluster
from tests.support.clusters.waiting import until
from tests.support.places import ROOT

_PAGE = ROOT / "kquota_spark" / "docs" / "rights.md"
_BLOCK = re.compile(r"^```(?:sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KINDS = {"topic": "TOPIC", "transactional_id": "TRANSACTIONAL_ID", "group": "GROUP", "cluster": "BROKER"}
_CLUSTER = "kafka-cluster"
_TIMEOUT_S = 60


class Grant(NamedTuple):
    """One right of one user."""

    user: str
    operation: str
    kind: str
    name: str

    def binding(self, of: Any = AclBinding) -> Any:
        """As the Admin API has it."""
        operation = AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", self.operation).upper()]
        return of(
            ResourceType[_KINDS[self.kind]], self.name, ResourcePatternType.LITERAL, f"User:{self.user}", "*",
            operation, AclPermissionType.ALLOW,
        )  # fmt: skip


def _commands(program: str) -> Iterator[list[str]]:
    for block in _BLOCK.findall(_PAGE.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words and words[0] == program:
                yield words[1:]


def _grants() -> Iterator[Grant]:
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap-server", "--allow-principal", "--topic", "--transactional-id", "--group"):
        parser.add_argument(option)
    parser.add_argument("--operation", action="append")
    for flag in ("--add", "--cluster"):
        parser.add_argument(flag, action="store_true")
    for command in _commands("kafka-acls.sh"):
        options = vars(parser.parse_args(command))
        [kind] = [kind for kind in _KINDS if options[kind]]
        name = _CLUSTER if kind == "cluster" else options[kind]
        user = options["allow_principal"].removeprefix("User:")
        yield from (Grant(user, operation, kind, name) for operation in options["operation"])


GRANTS = list(_grants())
"""All of the page."""


def node_rights() -> dict[str, dict[str, str]]:
    """Letters of rights (cdrwa) by user, by ZooKeeper node."""
    found: dict[str, dict[str, str]] = {}
    for command in _commands("setAcl"):
        *_, path, rights = command
        each = [right.split(":") for right in rights.split(",")]
        found[path] = {parts[1]: parts[-1] for parts in each if parts[0] == "digest"}
    return found


@contextmanager
def granted(cluster: Cluster, grants: Iterable[Grant]) -> Iterator[None]:
    """These rights and no others, for as long as the block runs."""
    client: Any = AdminClient({**cluster.client_settings()})
    wanted = set(grants)
    for answer in client.create_acls([grant.binding() for grant in wanted]).values():
        answer.result(_TIMEOUT_S)
    until(lambda: _count(client) == len(wanted))
    try:
        yield
    finally:
        for answer in client.delete_acls([grant.binding(AclBindingFilter) for grant in wanted]).values():
            answer.result(_TIMEOUT_S)
        until(lambda: _count(client) == 0)


def _count(client: Any) -> int:
    make: Any = AclBindingFilter
    any_of = make(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return len(client.describe_acls(any_of).result(_TIMEOUT_S))
