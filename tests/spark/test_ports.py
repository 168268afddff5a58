"""On a local master nothing of Spark listens beyond this machine, and what listens wants a secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

LISTENS = "0A"
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same within IPv6, and ::1, as /proc/net writes them."""
PROGRAM = """
import sys
from kquota_spark.config.settings import Settings
from kquota_spark.audit.spark import spark_session
session = spark_session(Settings(), "ports")
conf = session.sparkContext.getConf()
session.range(4).repartition(2).count()
print("up", conf.get("spark.authenticate"), conf.get("spark.ui.enabled"), flush=True)
sys.stdin.read()
session.stop()
"""


def listening(group: int) -> set[str]:
    """Local addresses at which the processes of a group listen."""
    inodes, found = set(), set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                links = [str(link.readlink()) for link in (process / "fd").iterdir()]
                inodes |= {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
        except OSError:
            continue
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def test_a_local_driver_listens_on_loopback_only() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**os.environ, "SPARK_CONF_DIR": "/nonexistent", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "up true false\n"
        addresses = listening(process.pid)
        assert addresses
        assert addresses <= set(LOOPBACK)
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
