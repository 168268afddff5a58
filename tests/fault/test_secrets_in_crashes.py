"""The job is full of secrets and crashes: none of them is in what it wrote, printed or showed.

All logs of Python and of the JVM are at DEBUG. The event log and the UI of Spark are on. No broker answers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kquota_spark.checkpoints.driver_lock import driver_pid
from kquota_spark.embedded.servers import free_ports
from tests.integration.test_log_topics import pages
from tests.support.places import ROOT
from tests.support.programs.canaries import AT_DEBUG, SECRETS, Planted, Way, hits
from tests.support.spark.quick import QUICK

WITHIN_S = 300.0
_HEAD = "cluster_id: crashing\ntables: {root}/tables\ncheckpoints: {root}/checkpoints\nmetrics: {{port: 0}}"
# A store of Java's own form: only Java can use these options, so nothing is asked before Spark is there.
_KAFKA = """\
  bootstrap_servers: {servers}
  topic: lines
  options:
    security.protocol: {protocol}
    sasl.mechanism: PLAIN
    ssl.truststore.location: {{root}}/no-such-store.jks
"""
_QUOTAS = "  source: file\n  file: {root}/quotas.yaml\n"
_LOG4J = """\
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
logger.org.name = org
logger.org.level = debug
logger.io.name = io
logger.io.level = debug
logger.com.name = com
logger.com.level = debug
"""
"""The job sets the level of the root alone."""


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def planted(root: Path, way: Way, servers: str, protocol: str) -> Planted:
    found = Planted(root, way)
    found.write(_HEAD, _KAFKA.format(servers=servers, protocol=protocol), _QUOTAS)
    (root / "quotas.yaml").write_text("- {user: alice, type: producer_byte_rate, value: 1000000}\n")
    (root / "events").mkdir()
    (root / "conf").mkdir()
    (root / "conf" / "log4j2.properties").write_text(_LOG4J)
    return found


@contextlib.contextmanager
def audit(settings: Planted, ui_port: int) -> Iterator[subprocess.Popen[bytes]]:
    root = settings.root
    java = f"-XX:+UseSerialGC -Xss4m -XX:ErrorFile={root}/hs_err.log -Djava.io.tmpdir={root}/tmp"
    options = {
        "spark.driver.extraJavaOptions": java,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"{root}/events",
        "spark.eventLog.compress": "false",
        "spark.local.dir": f"{root}/tmp",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.port.maxRetries": "0",
    }
    words = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[1]", *QUICK, *words, "--verbose"),
        *(str(ROOT / "jobs" / "audit.py"), "--config", str(settings.config)),
    ]
    with (root / "audit.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=root, env=settings.environment(SPARK_CONF_DIR=str(root / "conf")),
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def text_of(settings: Planted) -> str:
    return (settings.root / "audit.log").read_text("utf-8", errors="replace")


def until(settings: Planted, process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert process.poll() is None, text_of(settings)[-3_000:]
        assert time.monotonic() < deadline_s, "it did not come to that in time"
        time.sleep(0.1)


def test_an_exception_of_the_jvm_shows_no_secret(tmp_path: Path) -> None:
    settings = planted(tmp_path, "file", "127.0.0.1:1", "SASL_SSL")
    seen: dict[str, bytes] = {}
    with settings.watched(seen), audit(settings, *free_ports(1)) as process:
        assert process.wait(WITHIN_S) == 1
    said = text_of(settings)
    # The store was looked for, with all logs at DEBUG.
    assert "Failed to create new KafkaAdminClient" in said
    assert "DEBUG org.apache.spark" in said and AT_DEBUG in said
    assert "audit: query log failed and the job was stopped" in said
    assert any(str(settings.config).encode() in text for text in seen.values())
    assert hits({**settings.written(), **seen}, SECRETS.values()) == []


def test_a_signal_that_kills_the_jvm_leaves_no_secret(tmp_path: Path, silent: str) -> None:
    settings = planted(tmp_path, "environment", silent, "SASL_PLAINTEXT")
    seen: dict[str, bytes] = {}
    [port] = free_ports(1)
    with settings.watched(seen, ("cmdline",)), audit(settings, port) as process:
        until(settings, process, lambda: "AdminClientConfig values" in text_of(settings))
        shown = {f"page {n}": page.encode() for n, page in enumerate(pages(port))}
        driver = Path(f"/proc/{driver_pid(f'{tmp_path}/checkpoints', 'log')}")
        assert driver.is_dir()
        process.send_signal(signal.SIGSEGV)
        process.wait(WITHIN_S)
        deadline_s = time.monotonic() + WITHIN_S
        while driver.is_dir():  # it finds that its JVM is gone
            assert time.monotonic() < deadline_s, "the Python driver has outlived its JVM"
            time.sleep(0.1)
    written = settings.written()
    assert b"SIGSEGV" in written["hs_err.log"]
    assert any("events" in name for name in written)
    assert b"spark.hadoop.fs.s3a.secret.key" in b"".join(shown.values())
    assert hits({**written, **seen, **shown}, SECRETS.values()) == []


def test_a_signal_that_kills_the_python_driver_leaves_no_secret(tmp_path: Path, silent: str) -> None:
    settings = planted(tmp_path, "file", silent, "SASL_PLAINTEXT")
    seen: dict[str, bytes] = {}
    with settings.watched(seen), audit(settings, *free_ports(1)) as process:
        until(settings, process, lambda: "AdminClientConfig values" in text_of(settings))
        driver = driver_pid(f"{tmp_path}/checkpoints", "log")
        assert driver is not None
        os.kill(driver, signal.SIGABRT)
        process.wait(WITHIN_S)
    assert "Fatal Python error: Aborted" in text_of(settings)
    assert hits({**settings.written(), **seen}, SECRETS.values()) == []
