"""Every command and program with a dozen secrets in its settings, all logs at DEBUG: none of them shows anywhere.

Tables are on S3, whose keys are in use. ZooKeeper and the brokers take connections and never answer.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from kquota_spark.cli.main import parser
from tests.support.places import CONF, DATA, ROOT
from tests.support.programs.canaries import (
    AT_DEBUG,
    SECRETS,
    Planted,
    Way,
    forms,
    hits,
)
from tests.support.programs.s3_server import keys, s3_server
from tests.support.tables.audited_tables import tables

CAPTURE = DATA / "zk39-plain" / "broker-7.kafka-request.log.gz"
WITHIN_S = 120.0
_HEAD = """\
cluster_id: demo
tables: s3a://lake/tables
checkpoints: {root}/checkpoints
enforcement: {{policy_file: {root}/policy.yaml}}
"""
_KAFKA = """\
  bootstrap_servers: {servers}
  topic: lines
  jmx_topic: samples
  options:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
"""
_QUOTAS = "  source: {source}\n  zookeeper_connect: {servers}\n  connect_timeout: 500 ms\n"
_STORE = "  AWS_ENDPOINT_URL: {endpoint}\n  AWS_REGION: us-east-1\n  AWS_ALLOW_HTTP: 'true'\n"

# Arguments, and the exit code.
FIRST = ("backfill --file 7={root}/broker-7.log", 0)
THEN = [
    # With the tables on S3, which only that command has filled.
    ("doctor", 2),
    ("usage --since 3650d", 0),
    ("tables requests", 0),
    ("maintain", 1),
    ("lift --list", 0),
    # With tables on this disk that have decisions.
    ("violations --since 3650d --tables {root}/tables", 0),
    ("decisions --since 3650d --tables {root}/tables", 0),
    ("report --period last:2h --to {root}/report.html --tables {root}/tables", 1),
    ("report --period 2026-11-21..2026-11-22 --to {root}/report.html --tables {root}/tables", 0),
    ("exporter --once --tables {root}/tables", 0),
    ("notify --dry-run --tables {root}/tables", 0),
    ("notify --once --tables {root}/tables", 1),
    ("status --tables {root}/tables", 2),
    ("top --once --tables {root}/tables", 0),
    ("throttled --since 3650d --tables {root}/tables", 0),
    ("timeline --user alice --tables {root}/tables", 0),
    ("whatif --add user=alice,producer_byte_rate=10 --tables {root}/tables", 0),
    ("connections --since 3650d --tables {root}/tables", 0),
    ("evidence --user alice --at 2026-11-21T05:40:00Z --tables {root}/tables", 1),
    ("findings --tables {root}/tables", 0),
    ("agreement --tables {root}/tables", 0),
    ("review --base {root}/old.yaml --head {root}/new.yaml --tables {root}/tables", 0),
    ("migration --before {root}/old.yaml --after {root}/new.yaml --tables {root}/tables", 2),
    ("why --since 3650d --tables {root}/tables", 0),
    ("budget --tables {root}/tables", 0),
    ("rightsize --tables {root}/tables", 0),
    ("shadow --since 3650d --tables {root}/tables", 1),
    ("impact --tables {root}/tables", 1),
    ("tree --tables {root}/tables", 0),
    ("export --tables {root}/tables", 0),
    ("diff {root}/old.yaml {root}/new.yaml", 2),
    ("replay {root}/broker-7.log --broker 7 --quotas {root}/old.yaml", 0),
    ("completion bash", 0),
    # With servers that do not answer.
    ("doctor --before", 2),
    ("watch --once", 1),
    ("slow --since 10m", 1),
    ("ship --once --file 7={root}/broker-7.log", 1),
    ("collect jmx", 1),
    ("enforce plan", 1),
    ("describe", 1),
    ("resolve --user alice", 1),
    ("explain --user alice", 1),
    ("alter --user alice --add producer_byte_rate=10 --yes", 1),
    ("import {root}/new.yaml --yes", 1),
    ("drift {root}/old.yaml", 1),
    ("kfk query", 1),
    ("init --bootstrap-server 127.0.0.1:1", 1),
    ("override set --user alice --key producer_byte_rate --value 10 --for 1h --reason x --yes", 1),
    ("override list", 0),
    ("enforce status", 0),
    ("enforce show", 1),
    ("enforce run --once", 1),
    ("jobs/enforce.py --once", 1),
    ("jobs/maintain.py", 1),
    ("jobs/report.py --folder {root}/reports", 1),
]
# The state of all others depends on these, so they run after them, one by one.
LAST = [
    ("exempt add --user alice --force", 0),
    ("exempt list", 0),
    ("freeze --reason x --tables {root}/tables", 0),
    ("unfreeze --tables {root}/tables", 0),
]
ELSEWHERE = {
    "audit": "tests/fault/test_secrets_in_crashes.py",
    "restate": "as audit: it reads the same settings, in a Spark",
    "serve": "tests/unit/cli/serve/test_access.py",
    "quotas": "the old name of lift",
    "context": "it keeps the path of the settings, and does not read them",
}


@contextmanager
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(params=["environment", "file"])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Planted, str]]:
    """A folder with settings, and the endpoint of its tables."""
    way: Way = request.param
    with silent() as servers, s3_server() as endpoint:
        made = Planted(tmp_path, way)
        made.write(_HEAD, _KAFKA.format(servers=servers), _QUOTAS.format(source="zookeeper", servers=servers))
        text = made.config.read_text(encoding="utf-8")
        store = "storage_options:\n"
        made.config.write_text(
            text.replace(store, store + _STORE.format(endpoint=endpoint)), encoding="utf-8"
        )
        for name in ("policy.yaml", "exempt.txt"):
            (tmp_path / name).write_bytes((CONF / name).read_bytes())
        for name, limit in (("old", 2_000_000), ("new", 1_000_000)):
            quota = f"- {{user: alice, type: producer_byte_rate, value: {limit}}}\n"
            (tmp_path / f"{name}.yaml").write_text(quota, encoding="utf-8")
        with gzip.open(CAPTURE) as file:
            (tmp_path / "broker-7.log").write_bytes(b"".join(file.readlines()[:300]))
        yield made, endpoint


def command(made: Planted, arguments: str, *program: str) -> subprocess.CompletedProcess[bytes]:
    words = arguments.format(root=made.root).split()
    takes_settings = "completion" not in words
    return subprocess.run(
        [sys.executable, *program, *words, *(("--config", str(made.config)) if takes_settings else ())],
        cwd=made.root, env=made.environment(), capture_output=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip


def done(made: Planted, arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command of `kquota`, or one of the jobs that need no Spark."""
    if not arguments.startswith("jobs/"):
        return command(made, arguments, "-m", "kquota_spark.cli.main")
    name, _, rest = arguments.partition(" ")
    return command(made, rest, str(ROOT / name))


@pytest.mark.timeout(600)  # some 20 processes, some of which wait for a server as long as they do
def test_no_command_or_program_shows_a_secret(planted: tuple[Planted, str]) -> None:
    made, endpoint = planted
    tables(made.root / "tables")
    kinds = ("cmdline", "environ") if made.way == "file" else ("cmdline",)
    seen: dict[str, bytes] = {}
    with made.watched(seen, kinds), ThreadPoolExecutor(4) as pool:
        ended = [done(made, FIRST[0])]
        ended += pool.map(lambda each: done(made, each[0]), THEN)
        ended += [done(made, arguments) for arguments, _ in LAST]
    asked = [FIRST, *THEN, *LAST]
    codes = [(arguments, one.returncode) for (arguments, _), one in zip(asked, ended, strict=True)]
    assert [each for each in codes if each not in asked] == []
    said = {arguments: one.stdout + one.stderr for (arguments, _), one in zip(asked, ended, strict=True)}
    assert [name for name, text in said.items() if AT_DEBUG.encode() not in text] == []
    assert any(b"kquota_spark.cli.main\0ship" in text for text in seen.values())
    objects = {key: _object(endpoint, key) for key in keys(endpoint, "lake")}
    assert any("tables/requests/_delta_log/" in key for key in objects)
    written = made.written()
    assert {"report.html", "rows of tables/decisions"} <= written.keys()
    assert hits({**said, **seen, **objects, **written}, SECRETS.values()) == []


def test_every_command_that_takes_settings_is_one_of_them() -> None:
    asked = {arguments.split()[0] for arguments, _ in (FIRST, *THEN, *LAST)}
    assert {name for name in _takers_of_settings() if name not in asked} == set(ELSEWHERE)


def _takers_of_settings() -> Iterator[str]:
    """The commands with --config, themselves or in a subcommand."""
    for name, of_command in _subparsers(parser()).items():
        parsers = [of_command, *_subparsers(of_command).values()]
        if any("--config" in each.format_help() for each in parsers):
            yield name


def _subparsers(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [action.choices for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0]) if groups else {}


def _object(endpoint: str, key: str) -> bytes:
    login = {"aws_access_key_id": "reader", "aws_secret_access_key": "reader", "region_name": "us-east-1"}
    found = boto3.client("s3", endpoint_url=endpoint, **login).get_object(Bucket="lake", Key=key)
    return bytes(found["Body"].read())


# What breaks, and the command that does so with the secrets in its hands.
BROKEN = [
    ("kquota_spark.zookeeper.client", "KazooClient", "watch --once"),
    ("kquota_spark.kafka.clients", "admin", "ship --once --file 7={root}/broker-7.log"),
    ("kquota_spark.kafka.clients", "admin", "collect jmx"),
    ("deltalake", "DeltaTable", "doctor"),
]
_BREAK = """\
import importlib, sys
from kquota_spark.cli.main import main
def broken(*given, **named):
    raise RuntimeError("broken by the test")
broken.is_deltatable = broken
setattr(importlib.import_module(sys.argv[1]), sys.argv[2], broken)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(("module", "name", "arguments"), BROKEN)
def test_a_crash_by_exception_shows_no_secret(
    planted: tuple[Planted, str], module: str, name: str, arguments: str
) -> None:
    made, _ = planted
    (made.root / "broken.py").write_text(_BREAK, encoding="utf-8")
    done = command(made, arguments, str(made.root / "broken.py"), module, name)
    assert done.returncode == 1
    assert b"Traceback (most recent call last):" in done.stderr
    assert b"RuntimeError: broken by the test" in done.stderr
    assert hits({"said": done.stdout + done.stderr, **made.written()}, SECRETS.values()) == []


@pytest.mark.parametrize("arguments", ["watch", "ship --file 7={root}/broker-7.log", "collect jmx"])
def test_a_crash_by_signal_shows_no_secret(planted: tuple[Planted, str], arguments: str) -> None:
    made, _ = planted
    words = arguments.format(root=made.root).split()
    with (made.root / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "kquota_spark.cli.main", *words, "--config", str(made.config)],
            cwd=made.root, env=made.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    _until(lambda: _is_connected(process.pid))
    process.send_signal(signal.SIGABRT)
    assert process.wait(WITHIN_S) == -signal.SIGABRT
    assert b"Fatal Python error: Aborted" in (made.root / "said").read_bytes()
    assert hits(made.written(), SECRETS.values()) == []


def _is_connected(pid: int) -> bool:
    """Whether a process has an open socket: it is in the middle of asking."""
    return any(_target(link).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir())


def _target(link: Path) -> str:
    """What a link of `/proc` shows, or nothing if the process has closed it since it was listed."""
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def _until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come to that in time"
        time.sleep(0.05)


def test_each_form_of_a_secret_is_found_wherever_it_is_planted(tmp_path: Path) -> None:
    made = Planted(tmp_path, "file")
    made.write(_HEAD, _KAFKA.format(servers="127.0.0.1:1"), _QUOTAS.format(source="file", servers="none:1"))
    assert hits(made.written(), SECRETS.values()) == []
    secret = SECRETS["jolokia"]
    login = base64.b64encode(f"monitor:{secret}".encode())
    for number, form in enumerate([*forms(secret), login]):
        (tmp_path / "planted").write_bytes(b"\x00before " + form + b" after")
        assert hits(made.written(), SECRETS.values()) == [("planted", secret)], number
    seen: dict[str, bytes] = {}
    with made.watched(seen):
        sleeping = [sys.executable, "-c", "import time; time.sleep(2)"]
        subprocess.run(
            [*sleeping, SECRETS["sasl"]],
            env={"HELD": SECRETS["key"], "TMPDIR": f"{tmp_path}/tmp"},
            check=True,
        )
    found = {(name.partition(" ")[0], secret) for name, secret in hits(seen, SECRETS.values())}
    assert found == {("cmdline", SECRETS["sasl"]), ("environ", SECRETS["key"])}
