"""Logs that are no regular files are refused at once, and names of files are data."""

from __future__ import annotations

import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from tests.support.logs.followed_log import append, tail_of
from tests.support.logs.log_lines import PRODUCE_V9
from tests.support.logs.replayed_captures import found, run
from tests.support.places import DATA

QUOTAS = ("--quotas", str(DATA / "jmx-telegraf" / "quotas.yaml"))
FORGED = "broker-1\nkquota: all is well\x1b[2J.log"
SHOWN = "broker-1\\x0akquota: all is well\\x1b[2J.log"


def _odd(folder: Path, kind: str) -> Path:
    path = folder / "broker-1.log"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "packed pipe":
        path = folder / "broker-1.log.gz"
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        path.symlink_to(pipe)
    return path


ODD = pytest.mark.parametrize("kind", ["pipe", "packed pipe", "device", "folder", "link to a pipe"])


@ODD
def test_replay_of_what_is_no_regular_file_ends_at_once(kind: str, tmp_path: Path) -> None:
    path = _odd(tmp_path, kind)
    assert run(["replay", *QUOTAS, str(path)]) == (
        1,
        "",
        f"kquota: {path}: cannot be read: not a regular file\n",
    )


@ODD
def test_backfill_of_what_is_no_regular_file_ends_at_once(kind: str, tmp_path: Path) -> None:
    path, config = _odd(tmp_path, kind), tmp_path / "kquota.yaml"
    config.write_text(f"tables: {tmp_path}/tables\ncheckpoints: {tmp_path}/checkpoints\n")
    assert run(["backfill", "--config", str(config), "--file", f"1={path}"]) == (
        1, "", f"kquota: {path}: cannot be read: not a regular file\n",
    )  # fmt: skip


@ODD
def test_the_tail_of_what_is_no_regular_file_says_so_once_and_waits(kind: str, tmp_path: Path) -> None:
    path, said = _odd(tmp_path, kind), list[str]()
    tail = tail_of(path, said=said)
    assert [tail.read().lines for _ in range(3)] == [[], [], []]
    assert tail.is_waiting_for_file
    assert said == [f"{path}: cannot be read: not a regular file; let the shipper's user read it"]


def test_a_socket_and_a_link_to_nothing_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name has 107 bytes at most
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("broker-1.socket")
        expected = "kquota: broker-1.socket: cannot be read: No such device or address\n"
        assert run(["replay", *QUOTAS, "broker-1.socket"]) == (1, "", expected)
    Path("broker-1.gone").symlink_to("nothing")
    expected = "kquota: broker-1.gone: cannot be read: No such file or directory\n"
    assert run(["replay", *QUOTAS, "broker-1.gone"]) == (1, "", expected)
    Path("broker-1.ring").symlink_to("broker-1.ring")
    expected = "kquota: broker-1.ring: cannot be read: Too many levels of symbolic links\n"
    assert run(["replay", *QUOTAS, "broker-1.ring"]) == (1, "", expected)


def test_a_link_to_a_log_is_the_log(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    log.write_bytes(PRODUCE_V9 + b"\n")
    link = tmp_path / "broker-1.link"
    link.symlink_to(log)
    assert found(["replay", *QUOTAS, str(link)]) == found(["replay", *QUOTAS, str(log)])


def test_names_that_look_like_options_are_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("--broker=7").write_bytes(PRODUCE_V9 + b"\n")
    by_bucket = ("--broker", "1", "--by", "bucket", "--output", "json")
    code, out, err = run(["replay", *QUOTAS, *by_bucket, "--", "--broker=7"])
    assert (code, err) == (0, "")
    assert {bucket["broker_id"] for bucket in json.loads(out)["buckets"]} == {1}
    config = Path("kquota.yaml")
    config.write_text("tables: tables\ncheckpoints: checkpoints\n")
    # The pattern is ours to expand: what it finds is never read as an option.
    assert main(["backfill", "--config", "kquota.yaml", "--file", "1=--*"]) == 0
    assert capsys.readouterr().err.splitlines()[0].startswith("--broker=7: 1 lines, 2024-11-20")


def test_beside_a_log_names_that_look_like_options_are_left_alone(log: Path) -> None:
    append(log, b"1\n", 1_000)
    tail = tail_of(log)
    assert tail.read().lines == [b"1"]
    log.rename(log.with_name("kafka-request.log.1"))
    for name in (
        "--once",
        "-rf",
        "kafka-request.log.2\n",
        "kafka-request.log.\n2",
        "kafka-request.log --end",
    ):
        append(log.with_name(name), b"no\n")
    append(log, b"2\n")
    lines = [line for _ in range(4) for line in tail.read().lines]
    assert lines == [b"2"]


def test_a_name_with_a_line_feed_forges_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cannot = f"kquota: {SHOWN}: cannot be read: No such file or directory\n"
    assert run(["replay", *QUOTAS, FORGED]) == (1, "", cannot)
    Path("x\ny.log").write_bytes(PRODUCE_V9)
    no_id = "kquota: x\\x0ay.log: no broker-<id> in the name: say which broker with --broker ID\n"
    assert run(["replay", *QUOTAS, "x\ny.log"]) == (1, "", no_id)
    Path(f"{FORGED}.gz").write_bytes(gzip.compress(PRODUCE_V9)[:-20])
    cut = f"kquota: {SHOWN}.gz: the compressed file ends in the middle: fetch it again\n"
    assert run(["replay", *QUOTAS, f"{FORGED}.gz"]) == (1, "", cut)
    Path("kquota.yaml").write_text("tables: tables\ncheckpoints: checkpoints\n")
    Path(FORGED).write_bytes(PRODUCE_V9)
    for code, line in (
        (0, f"{SHOWN}: 1 lines, 2024-11-20"),
        (1, f"kquota: {SHOWN}: its beginning is that of {SHOWN}, of which 1 lines are in requests already"),
    ):
        ended, out, err = run(["backfill", "--config", "kquota.yaml", "--file", f"1={FORGED}"])
        assert (ended, out, err.startswith(line)) == (code, "", True), err
        assert len(err.splitlines()) == 1 + (code == 0)  # and what to do next


def test_the_name_inside_of_an_archive_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "in" / "broker-1.log.gz"
    path.parent.mkdir()
    plain = gzip.compress(PRODUCE_V9 + b"\n", mtime=0)
    # Flag 8: a name follows the header of ten bytes.
    path.write_bytes(plain[:3] + b"\x08" + plain[4:10] + b"../escaped\0" + plain[10:])
    assert found(["replay", *QUOTAS, str(path)])["counted"] == 1
    assert sorted(tmp_path.rglob("*")) == [path.parent, path]
