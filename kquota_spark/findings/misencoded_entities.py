"""MISENCODED_ENTITY: quotas that nobody gets because the name is spelt otherwise than brokers compare it.

The type of the principal in front (`User:alice`: brokers compare `alice`), a name that was encoded where names are
raw (`CN%3Dapp` in KRaft), or raw where ZooKeeper has them encoded. The first two are found only when somebody was seen
who has the name that was meant, and nobody who has the one that was set.
"""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.findings.findings import Finding, Kind, Severity
from kquota_spark.model.compare.observed_clients import Observed
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.names import desanitise

_NEVER_FOUND = "brokers never find this user"
"""How `formats.znodes.nodes` begins the problem of a user node that is not spelt as Kafka spells it."""


def misencoded(observed: Observed) -> Iterator[Finding]:
    """All of them, those of ZooKeeper by the problem that its reader has noted."""
    """All of them, those of ZooKeeper by the problem that its reader has noted."""
    for rule, (name, seen_as) in misnamed(observed).items():
        yield Finding(
            Kind.MISENCODED_ENTITY,
            Severity.HIGH,
            str(rule),
            f"matches nobody: the name as set is {name}, but the log has {seen_as}",
            f"set it for {seen_as} and remove this one",
            ({"entity": str(rule), "name": name, "seen": seen_as},),
        )
    for node, problem in observed.problems.items():
        if problem.startswith(_NEVER_FOUND):
            yield Finding(
                Kind.MISENCODED_ENTITY,
                Severity.HIGH,
                node,
                problem,
                "set the quota with kafka-configs.sh, which spells the name right, and remove this node",
                ({"entity": node, "name": node, "seen": None},),
            )


def misnamed(observed: Observed) -> dict[Entity, tuple[str, str]]:
    """Entities whose name nobody has, while somebody has what it stands for: as set, and as seen."""
    users = {one.user for one in observed.seen}
    client_ids = {one.client_id for one in observed.seen}
    found: dict[Entity, tuple[str, str]] = {}
    for rule in observed.rules:
        for name, seen in ((rule.entity.user, users), (rule.entity.client_id, client_ids)):
            if not isinstance(name, str) or name in seen:
                continue
            for meant in (name.removeprefix("User:"), _decoded(name)):
                if meant not in (name, "") and meant in seen:
                    found[rule.entity] = (name, meant)
    return found


def _decoded(name: str) -> str:
    try:
        return desanitise(name) if "%" in name else name
    except ValueError:
        return name
