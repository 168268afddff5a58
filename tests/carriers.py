"""What each class that holds quotas adds: `python -m tests.carriers`. `tests.counts` finds the classes."""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

from tests.counts import Package, carriers_of_quotas
from tests.support.places import ROOT


class Carrier(NamedTuple):
    """Why a class is there."""

    group: str
    adds: str


CARRIERS = {
    "enforce.ports.Image": Carrier("carrier", "all quotas at one time, with versions and problems"),
    "enforce.ports.Change": Carrier("carrier", "a write to one entity, with the note of a restoration"),
    "quotas.sources.QuotaHistory": Carrier("carrier", "quotas over time, as far as a source has them"),
    "enforce.changes.Quota": Carrier("element", "the name of one quota: entity and key"),
    "model.quotas.quota_set.QuotaEdit": Carrier(
        "element", "the difference of two images in one key, without time"
    ),
    "model.quotas.rules.QuotaChange": Carrier(
        "element", "an edit with its time and version: a row of quota_changes"
    ),
    "model.quotas.rules.RulePeriod": Carrier(
        "element", "the values of an entity in a period: a row of quota_rules"
    ),
    "formats.exchange.registry.Format": Carrier(
        "format", "holds no quotas: functions that read and write them"
    ),
    "formats.znodes.nodes.QuotaPayload": Carrier(
        "format", "a node of ZooKeeper, with keys that brokers do not update"
    ),
    "gateway.messages.Decided": Carrier(
        "format", "a message to gateways, with the changes of enforcement in it"
    ),
    "enforce.policies.policy.ClusterQuota": Carrier(
        "settings", "holds no quotas: the key that the policy changes"
    ),
    "enforce.policies.policy.Lower": Carrier("settings", "holds no quotas: the keys that the policy changes"),
    "enforce.policies.policy.Penalty": Carrier(
        "settings", "holds no quotas: the keys that the policy changes"
    ),
    "enforce.policies.context.PolicyContext": Carrier(
        "index", "the quotas of its observations by entity, to resolve"
    ),
    "model.compare.observed_clients.Observed": Carrier("index", "its rules by entity, to resolve"),
    "model.govern.govern.RuleGovernor": Carrier(
        "index", "a history that answers which quota governs a request"
    ),
    "quotas.ledger.Recorded": Carrier(
        "index", "the newest recorded state of an entity, to compare with its source"
    ),
    "model.compare.observed_clients.Rule": Carrier(
        "row", "quotas of users and client ids, with the time they began"
    ),
    "quotas.stored.StoredRules": Carrier(
        "row", "quota_rules, with None for a time that no source has recorded"
    ),
    "reports.impact.edit_impact.Edit": Carrier("row", "an edit at the time at which brokers applied it"),
    "findings.idle_rules.Dead": Carrier("finding", "keys of a rule that no client uses"),
    "findings.idle_rules.Shadow": Carrier("finding", "a key of a rule that never governs, and why"),
    "model.compare.drift.Editor": Carrier("finding", "a client or a policy that may have made an edit"),
    "model.compare.quota_tree.KeyUse": Carrier("finding", "how often a key governed, on a tree"),
    "reports.review.gathering.Traffic": Carrier(
        "finding", "the recorded clients of a period, with the quotas at its end"
    ),
    "reports.review.review.Oversubscription": Carrier(
        "finding", "the sum of limits beside the capacity of a broker"
    ),
}
"""By the class. Only a `carrier` or an `element` is passed on between folders as "the quotas"."""


def main() -> int:
    """Print each class with its group and what it adds, and the number per group."""
    found = carriers_of_quotas(Package(ROOT / "kquota_spark"))
    print("| class | group | what it adds |\n| --- | --- | --- |")
    for name in sorted(found, key=lambda name: (list(CARRIERS).index(name), name)):
        print(f"| {name} | {CARRIERS[name].group} | {CARRIERS[name].adds} |")
    groups = Counter(CARRIERS[name].group for name in found)
    print("\n" + ", ".join(f"{group} {count}" for group, count in groups.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
