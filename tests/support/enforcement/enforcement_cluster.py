"""A cluster with quotas in memory, real tables that show an offender, and a policy file: for tests of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.config.settings import Settings
from kquota_spark.enforce.in_memory import InMemoryLease, InMemoryLeases, MemoryCluster
from kquota_spark.enforcement.assembly import Edges
from kquota_spark.enforcement.edges.freeze_switch import FreezeSwitch
from kquota_spark.enforcement.edges.log import EnforcementLog
from tests.support.clock import set_clock
from tests.support.tables.table_rows import T0_MS, decision, heartbeat, second, source, usage, write_table

NOW_MS = T0_MS + 121_000
LIMIT = 1_000_000.0
RATE = 2_000_000
POLICY = """\
mode: {mode}   # how far
guards:
  bounds:
    producer_byte_rate: {{floor: 100000, ceiling: 4000000}}
exempt: {{file: exempt.txt}}
policies:
  - name: repeat-offenders
    kind: penalty
    mode: {mode}
    keys: [producer_byte_rate]
    within: 1 min
    expires_after: 15 min
"""


class InMemoryCluster:
    """alice sends 2 MB/s under a quota of 1 MB/s, for two minutes; bob 25 % of his."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
        monkeypatch.chdir(root)
        self.root = root
        self.now_ms = NOW_MS
        self.nodes = {"users/alice": {"producer_byte_rate": "1000000"}, "users/bob": {}}
        self.leases = InMemoryLeases()
        self.policy_file = root / "policy.yaml"
        self.exempt_file = root / "exempt.txt"
        self.exempt_file.write_text("# nobody\n", encoding="utf-8")
        self.set_mode(mode)
        self.config = root / "kquota.yaml"
        text = f"cluster_id: demo\ntables: {root}/tables\ncheckpoints: {root}/checkpoints\n"
        self.config.write_text(f"{text}enforcement: {{policy_file: {self.policy_file}}}\n", encoding="utf-8")
        write_tables(root / "tables")
        monkeypatch.setattr("kquota_spark.enforcement.assembly.enforcement_edges", self.edges)
        monkeypatch.setattr("kquota_spark.cli.enforce.freeze.getpass.getuser", lambda: "eve")
        set_clock(monkeypatch, lambda: self.now_ms)

    def set_mode(self, mode: str) -> None:
        """Write the policy file."""
        self.policy_file.write_text(POLICY.format(mode=mode), encoding="utf-8")

    def name_cluster(self) -> None:
        """Have the settings name a cluster for the commands that change quotas."""
        with self.config.open("a", encoding="utf-8") as file:
            file.write("quotas: {zookeeper_connect: 'zk1:2181'}\n")

    def require_second_person(self) -> None:
        """Have `enforcement.approval` ask for one."""
        text = self.config.read_text(encoding="utf-8")
        self.config.write_text(
            text.replace("{policy_file", "{approval: second_person, policy_file"), encoding="utf-8"
        )

    @contextmanager
    def edges(self, settings: Settings, *, is_patient: bool = False) -> Iterator[Edges]:
        """As `enforcement.assembly.enforcement_edges`; log and switch are the real ones."""
        lease = InMemoryLease(self.leases, "eve")
        target = MemoryCluster(self.leases, self.nodes)
        try:
            yield Edges(target, lease, FreezeSwitch(settings), EnforcementLog(settings))
        finally:
            lease.release()

    @property
    def of_alice(self) -> str | None:
        """The text of her quota in the cluster."""
        return self.nodes["users/alice"].get("producer_byte_rate")


def write_tables(root: Path) -> None:
    """Two minutes of both, all decided."""
    over = {"rate_per_s": 2.1e6, "quota_used_percent": 210.0, "amount": RATE, "throttled_requests": 1}
    of_bob: dict[str, Any] = {"bucket_user": "bob", "rule": "users/bob", "users": ["bob"]}
    throttled = {"total_throttle_ms": 20_000, "observed_throttled_requests": 1}
    write_table(root, "requests", heartbeat(1, NOW_MS))
    write_table(
        root, "usage", *(usage(n, user=user, amount=RATE) for n in range(120) for user in ("alice", "bob"))
    )
    write_table(
        root, "decisions", *(decision(n, **over, **throttled) for n in range(120)),
        *(decision(n, **of_bob) for n in range(120)),
    )  # fmt: skip
    rule = {
        "cluster_id": "demo",
        "level": 3,
        "producer_byte_rate": LIMIT,
        "valid_from": second(-99_999),
        "version": 7,
    }
    rules = ({**rule, "entity": f"users/{user}", "user": user} for user in ("alice", "bob"))
    write_table(root, "quota_rules", source(120), *rules)
    write_table(root, "quota_changes")
    write_table(root, "violations")
