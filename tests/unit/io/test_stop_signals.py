"""A signal may come at any moment of the main thread, also while it looks at the event that the signal sets."""

from __future__ import annotations

import subprocess
import sys

# Each round ends by one signal. Set in the handler itself, the event hangs within a few rounds.
_ROUNDS = """
import os, signal, threading, time
from kquota_spark.process.graceful_stop import stop_event
def tell(wait_s):
    time.sleep(wait_s)
    os.kill(os.getpid(), signal.SIGTERM)
for round in range(300):
    stop = stop_event()
    threading.Thread(target=tell, args=(0.0005 + round % 17 * 0.0001,)).start()
    while not stop.wait(0):
        pass
print("ended")
"""


def test_a_signal_amid_a_look_at_the_event_ends_the_wait_and_never_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout == "ended\n"
