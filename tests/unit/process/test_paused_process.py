"""A process that is paused does nothing more: SIGSTOP alone is only asked for, and threads stop one after the other."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from kquota_spark.errors import UserError
from kquota_spark.process.processes import kill, pause, send, spawn, wait_for

BUSY = """
import threading
def run():
    while True:
        pass
for _ in range(20):
    threading.Thread(target=run, daemon=True).start()
print("busy", flush=True)
run()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say what threads do")
def test_no_thread_of_a_paused_process_runs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", BUSY], directory=tmp_path, log=log, group=None)
    try:
        assert wait_for(lambda: log.read_bytes() == b"busy\n", within_s=60)
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        assert len(threads) == 21
        for _ in range(15):
            pause(process)
            states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]
            assert states == ["T"] * 21
            send(process, signal.SIGCONT)
    finally:
        kill([process])


def test_a_process_that_cannot_be_paused_is_an_error_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = spawn([sys.executable, "-c", BUSY], directory=tmp_path, log=tmp_path / "log", group=None)
    try:
        with monkeypatch.context() as never:
            never.setattr("kquota_spark.process.processes.wait_for", lambda *_, **__: False)
            with pytest.raises(UserError, match=f"^process {process.pid} cannot be paused, and continues"):
                pause(process)
        assert wait_for(lambda: (tmp_path / "log").read_bytes() == b"busy\n", within_s=60)
    finally:
        kill([process])
