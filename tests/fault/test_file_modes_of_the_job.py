"""Who may read what the job writes under the umask of the units: tables, checkpoints, the event log of Spark."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster
from tests.support.clusters.audited_topic import configured, finish

UMASK = 0o027
"""UMask=0027 of conf/systemd."""


def test_under_the_umask_of_the_units_tables_and_checkpoints_are_for_owner_and_group(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = configured(tmp_path / "run", cluster)
    events = tmp_path / "run" / "events"
    events.mkdir(mode=0o750)
    logged = ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}")
    before = os.umask(UMASK)
    try:
        finish(config, *logged)
    finally:
        os.umask(before)
    places = [config.parent / name for name in ("tables", "checkpoints", "events")]
    found = [path for place in places for path in (place, *place.rglob("*"))]
    for part in ("tables/decisions/", "checkpoints/log/offsets/0", "checkpoints/log/state/", "events/"):
        assert any(part in str(path) for path in found), part
    open_to_others = {
        str(path.relative_to(config.parent)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in found
        # Spark gives its event log to the group as a whole, whatever the umask.
        if stat.S_IMODE(path.stat().st_mode) & (0o007 if events in (path, *path.parents) else UMASK)
    }
    assert open_to_others == {}
