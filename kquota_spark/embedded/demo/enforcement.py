"""The demo's last act: what enforcement would do about the audit's findings; with ENFORCE=1 it does, and reverts it.

It uses only the commands of an operator. The offender opens a connection for each record, so a throttle never slows it
down. It runs only with ENFORCE=1.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kquota_spark.embedded.cluster import Cluster, logged_lines
from kquota_spark.embedded.readiness import connected
from kquota_spark.errors import UserError
from kquota_spark.formats.request_log.line import RequestLogParser
from kquota_spark.kafka import clients as kafka_clients
from kquota_spark.kafka.quota_admin import QuotaAdmin
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.process.clock import now_ms

LEAST_SECONDS = 150.0
"""Minimum length of the load for ENFORCE=1, seconds: policies judge one minute or more."""
OFFENDER, USER = "crawler", "erin"
NODE = f"/config/clients/{OFFENDER}"
_RECORD = b"x" * 100_000
_RECORDS_PER_S = 4
_SEEN_MS = 10_000
_PRODUCE = 0
_PARSER = RequestLogParser("UTC")
_AGAIN_S = 5.0
_COMMAND_WITHIN_S = 180.0
_POLICY = """\
# Written by the demo; conf/policy.yaml has every key, commented.
mode: {mode}
guards:
  bounds:
    producer_byte_rate: {{floor: 10000, ceiling: 10000000}}
    consumer_byte_rate: {{floor: 10000, ceiling: 10000000}}
policies:
  - {{name: repeat-offenders, kind: penalty, mode: {mode}, within: 1 min, expires_after: {penalty} s}}
  - name: raise-throttled
    kind: raise
    mode: observe
    broker_capacity_per_s: {{producer_byte_rate: 20000000, consumer_byte_rate: 20000000}}
    within: 1 min
    least_seconds: 20
  - {{name: lower-unused, kind: lower, mode: observe, within: 1 min}}
"""


def write_policy(path: Path, seconds: float, *, is_enforced: bool) -> None:
    """Write the demo's policy file; a penalty ends before the load does."""
    mode = "approve" if is_enforced else "observe"
    path.write_text(_POLICY.format(mode=mode, penalty=penalty_s(seconds)), encoding="utf-8")


def penalty_s(seconds: float) -> int:
    """Duration of a penalty in whole seconds, short enough to end before the load does."""
    return round(0.25 * seconds)


def check_enforced(seconds: float, source: str, named: Callable[[str], str]) -> None:
    """Check that the demo can show enforcement.

    Args:
        seconds: length of the load.
        source: input of the audit, `log` or `jmx`.
        named: returns the user's name for a variable.

    Raises:
        UserError: the load is too short, or there is no request log.
    """
    if seconds < LEAST_SECONDS:
        raise UserError(
            f"{named('ENFORCE')} needs {named('DEMO_SECONDS')} of {LEAST_SECONDS:.0f} or more: policies judge minutes"
        )
    if source != "log":
        raise UserError(f"{named('ENFORCE')} needs a request log: leave {named('SOURCE')} out")


class Act:
    """ENFORCE=1: plans a penalty for the offender, applies it and reverts it, beside the live table."""

    def __init__(self, cluster: Cluster, config: Path, seconds: float) -> None:
        self._cluster, self._config = cluster, config
        self._penalty_s = penalty_s(seconds)
        self._due_s = seconds / 2
        self._limited_ms: int | None = None
        self._is_over = False

    def step(self, passed_s: float) -> list[str]:
        """Take the next step if it is due; return lines about it, none if nothing was done."""
        if self._is_over or passed_s < self._due_s:
            return []
        if self._limited_ms is not None:
            return self._release()
        lines = self._limit()
        self._due_s = passed_s + (self._penalty_s + 1 if lines else _AGAIN_S)
        return lines

    def finish(self) -> None:
        """Take the steps that were not due before the load ended, and print lines about them."""
        if self._limited_ms is None:
            print(
                f"nobody was limited: {OFFENDER} was in no plan before the load ended: the load was too short"
            )
        elif not self._is_over:
            time.sleep(max(0.0, self._penalty_s + 1 - (now_ms() - self._limited_ms) / 1_000))
            print("\n".join(self._release()), flush=True)

    @contextmanager
    def offender(self) -> Iterator[None]:
        """Run the client that does not wait, while the block runs."""
        stop = threading.Event()
        client = threading.Thread(target=_crawl, args=(self._cluster, stop), daemon=True)
        client.start()
        try:
            yield
        finally:
            stop.set()
            client.join()

    def _limit(self) -> list[str]:
        planned = self._kquota("enforce", "plan", "--output", "csv")
        found = [line.split(",")[0] for line in planned if f",planned,clients/{OFFENDER}," in line]
        if not found:
            return []
        lines = self._kquota("enforce", "show", found[0])
        for command in ("approve", "apply"):
            lines += self._kquota("enforce", command, found[0], "--yes")
        self._limited_ms = now_ms()
        return lines

    def _release(self) -> list[str]:
        assert self._limited_ms is not None
        self._is_over = True
        before = self._throttle(self._limited_ms)
        after = self._throttle(now_ms())
        lines = [
            f"the broker's own log: {OFFENDER} was throttled for {before} before, {after} under the penalty"
        ]
        lines += ["$ kquota enforce run --once"]
        done = _kquota("enforce", "run", "--once", config=self._config)
        lines += [line for line in done.splitlines() if OFFENDER in line]
        what, is_there = _quota_left(self._cluster)
        return [*lines, f"{what} {'is still there' if is_there else 'is gone again, as before the penalty'}"]

    def _kquota(self, *words: str) -> list[str]:
        return [f"$ kquota {' '.join(words)}", *_kquota(*words, config=self._config).splitlines()]

    def _throttle(self, to_ms: int) -> str:
        """Mean throttle over the ten seconds before, read from the log: the tables are some seconds behind."""
        throttles_ms = [
            request.observed_throttle_ms
            for broker in self._cluster.brokers
            for line in logged_lines(broker.request_log)
            if f'"{OFFENDER}"'.encode() in line
            and (request := _PARSER.parse(line)).api_key == _PRODUCE
            and to_ms - _SEEN_MS <= request.record_time_ms < to_ms
        ]
        mean_s = sum(throttles_ms) / max(len(throttles_ms), 1) / 1_000
        return f"{mean_s:.1f} s a record ({len(throttles_ms)} records)"


def _quota_left(cluster: Cluster) -> tuple[str, bool]:
    """A text for where the offender's quota is stored, and whether it is there."""
    if cluster.has_zookeeper:
        with connected(cluster.zookeeper_connect) as client:
            return f"ZooKeeper: {NODE}", bool(client.exists(NODE))
    admin = QuotaAdmin(
        cluster.bootstrap_servers, cluster.client_settings(), timeout_ms=round(_COMMAND_WITHIN_S * 1_000)
    )
    with closing(admin):
        return f"Admin API: the quota of clients/{OFFENDER}", bool(
            admin.describe([Entity(client_id=OFFENDER)])
        )


def _kquota(*words: str, config: Path) -> str:
    """The output of a `kquota` command, run in a separate process as a user would."""
    return _output([sys.executable, "-m", "kquota_spark.cli.main", *words, "--config", str(config)])


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_WITHIN_S)
    if done.returncode != 0:
        raise UserError(
            f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr.strip() or done.stdout}"
        )
    return done.stdout


def shown(*words: str, config: Path) -> str:
    """A command line of `kquota`, and its output below.

    Raises:
        UserError: the command fails.
    """
    return f"\n$ kquota {' '.join(words)} --config {config}\n{_kquota(*words, config=config)}"


def _crawl(cluster: Cluster, stop: threading.Event) -> None:
    while not stop.wait(1 / _RECORDS_PER_S):
        producer = kafka_clients.producer({**cluster.client_settings(USER), "client.id": OFFENDER})
        producer.produce("orders", _RECORD)
        producer.flush(10)
