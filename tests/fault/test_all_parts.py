"""All parts at the same time, under every kind of trouble: in the end nothing is lost and nothing is there twice.

Shipper, audit, enforcer and exporter work on a real cluster with clients, while parts and servers are killed and
paused, the network is cut, the disk fills up, quotas are edited, and tables are maintained and restated.
`KQUOTA_TROUBLE_S` is how long the trouble lasts: two minutes, or ten by hand.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kquota_spark.embedded.readiness import connected
from kquota_spark.process.processes import wait_for
from tests.support.chance import Chance
from tests.support.clusters.audited_topic import differences
from tests.support.trouble.clients import metered, pressing_on
from tests.support.trouble.compared import compared
from tests.support.trouble.parts import kept_running
from tests.support.trouble.walk import TROUBLES, walk
from tests.support.trouble.world import (
    BROKER,
    JMX_TOPIC,
    LOAD,
    METER,
    METERED,
    OFFENDER,
    TWIN,
    World,
    world,
)

TROUBLE_S = float(os.environ.get("KQUOTA_TROUBLE_S", "120"))
BEGUN_WITHIN_S, HEALED_WITHIN_S = 240.0, 480.0
HISTORY = ("quota_changes", "quota_rules", "partition_leaders", "broker_configs")
"""What the audit saw while it happened, and nobody can see again."""
OWN = b'"clientId":"kquota-'
MOST_MARKED = 0.5
"""Maximum part of the seconds that may differ before restating: with more, the comparison would say little."""
RESULTS = ("requests", "usage", "decisions", "violations")

pytestmark = pytest.mark.timeout(TROUBLE_S + 1_500)


def _rows(tables: Path, name: str) -> int:
    try:
        return DeltaTable(str(tables / name)).to_pyarrow_dataset().count_rows()
    except TableNotFoundError:
        return 0


def _is_well(found: World) -> bool:
    """All parts run and answer, and new decisions come."""
    found.look()
    before = _rows(found.tables, "decisions")
    is_up = all(part.is_running for part in found.parts.values()) and all(found.scrape().values())
    return is_up and wait_for(lambda: _rows(found.tables, "decisions") > before > 0, within_s=10)


def _restate_all(found: World, config: Path) -> None:
    """Every second by the quotas that are known in the end."""
    connection = duckdb.connect()
    connection.register("usage", DeltaTable(str(found.tables / "usage")).to_pyarrow_dataset())
    [bounds] = connection.execute("SELECT epoch_ms(min(second)), epoch_ms(max(second)) FROM usage").fetchall()
    done = found.run(
        "jobs/restate.py", "--from", str(bounds[0]), "--to", str(bounds[1] + 1_000), config=config
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path, chance: Chance) -> None:
    with world(tmp_path) as found, kept_running([*found.parts.values()]):
        writes_before = _writes(found)
        with (
            pressing_on(found.cluster, LOAD, OFFENDER),
            metered(found.cluster, JMX_TOPIC, METERED, METER),
        ):
            assert wait_for(lambda: _is_well(found), within_s=BEGUN_WITHIN_S)
            came = walk(found, chance, TROUBLE_S)
            assert wait_for(lambda: _is_well(found), within_s=HEALED_WITHIN_S)
        for part in found.parts.values():
            assert part.stop() == 0, part.name
        print("troubles:", came)
        print("starts:", {name: part.starts for name, part in found.parts.items()})
        print("ended by themselves with:", {name: part.exits for name, part in found.parts.items()})
        for name, part in found.parts.items():
            assert 0 not in part.exits, f"{name} ended as if it were done"
            # Spark logs the stack of a query that failed; each end has a line of ours besides.
            said = part.log.read_text(encoding="utf-8").splitlines()
            ours = [line for line in said if line.startswith((f"{name}: ", "kquota: "))]
            print(name, *ours, sep="\n  ")
            assert len(ours) >= len(part.exits), name

        written = found.log_lines()
        for command in (("ship", "--once", "--end"), ("jobs/audit.py", "--drain")):
            done = found.run(*command)
            assert done.returncode == 0, done.stderr
        _nothing_lost_or_doubled(found, written)
        _equal_to_an_untroubled_run(found, tmp_path / "untroubled")
        _changed_once(found, _writes(found) - writes_before)
    assert TROUBLE_S < 600 or set(came) == {name for name, times in came.items() if times} == set(TROUBLES)


def _nothing_lost_or_doubled(found: World, written: list[bytes]) -> None:
    """Lines of the log = lines in the topic without copies; lines in the topic = rows."""
    shipped = found.shipped()
    for broker_id in (BROKER, TWIN):
        copies = Counter(each.line for each in shipped.values() if each.broker_id == broker_id)
        print(f"broker {broker_id}: lines {len(written):,}, copies {copies.total() - len(copies):,}")
        # The shipper leaves out the lines of our own clients, which shipping would make more of without end.
        assert [line for line in written if line not in copies and OWN not in line[:512]] == []
        assert set(copies) <= set(found.log_lines())
    assert {partition for partition, _ in shipped} == {0, 1}
    columns = ["partition", "kafka_offset", "kind"]
    table = DeltaTable(str(found.tables / "requests")).to_pyarrow_table(columns=columns)
    places = Counter(
        (row["partition"], row["kafka_offset"])
        for row in table.to_pylist()
        if row["kind"] in ("request", "unreadable")
    )
    assert places == Counter(shipped.keys())


def _equal_to_an_untroubled_run(found: World, root: Path) -> None:
    """All of the topics in one run, with the history of the troubled one.

    At first nothing is recomputed: only seconds that the tables mark may differ. Then both runs are restated from end
    to end, and nothing may.
    """
    for name in HISTORY:
        if (found.tables / name).exists():
            shutil.copytree(found.tables / name, root / "tables" / name)
    config = root / "kquota.yaml"
    text = found.config.read_text(encoding="utf-8").replace(f"{found.disk}/", f"{root}/")
    config.write_text(text, encoding="utf-8")
    done = found.run("jobs/audit.py", "--drain", config=config)
    assert done.returncode == 0, done.stderr
    before = compared(found.disk, root)
    print(f"before restating: {before.marked} of {before.seconds} seconds of brokers may differ")
    assert before.differences == {}
    assert before.marked < before.seconds * MOST_MARKED
    for each in (found.config, config):
        _restate_all(found, each)
    for name in RESULTS:
        # What JMX says is not recomputed.
        assert differences(name, found.disk, root, f"broker_id <> {METERED}") == [], name


def _writes(found: World) -> int:
    """How often the quota of the offender was written, by ZooKeeper's own count."""
    with connected(found.cluster.zookeeper_connect) as client:
        return int(client.get(f"/config/clients/{OFFENDER}")[1].version)


def _changed_once(found: World, writes: int) -> None:
    """Every change that the enforcer made is in its log once, and was made once."""
    log = DeltaTable(str(found.tables / "enforcement_log")).to_pyarrow_table().to_pylist()
    events = Counter((row["plan_id"], row["step"], row["event"]) for row in log)
    print("enforced:", Counter(event for _, _, event in events))
    done = {key: count for key, count in events.items() if key[2] in ("applied", "restored")}
    assert done, json.dumps([row["event"] for row in log])
    assert set(done.values()) == {1}
    assert len(done) == writes
