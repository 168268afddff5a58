"""The files and options that `kquota replay` takes, and those that it refuses in one line."""

from __future__ import annotations

import contextlib
import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.cli.main import main
from kquota_spark.formats.request_log.line import RequestLogParser, Unreadable
from tests.support.logs.replayed_captures import COUNTS, TELEGRAF, found, run
from tests.support.places import DATA


def test_a_plain_file_is_read_like_its_gz(tmp_path: Path, answers: dict[str, dict[str, Any]]) -> None:
    text = gzip.decompress(TELEGRAF.logs[0].read_bytes())
    plain = tmp_path / "broker-1.kafka-request.log"
    plain.write_bytes(text)
    windows = tmp_path / "broker-1.windows.log"
    windows.write_bytes(text.replace(b"\n", b"\r\n"))
    for path in (plain, windows):
        arguments = [*TELEGRAF.arguments("--show", "wrong")[:-1], str(path)]
        assert found(arguments) == answers["jmx-telegraf"]


def test_a_file_given_twice_is_counted_once(answers: dict[str, dict[str, Any]]) -> None:
    arguments = [*TELEGRAF.arguments(), str(TELEGRAF.logs[0])]
    twice, once = found(arguments), answers["jmx-telegraf"]
    assert (twice["lines"], twice["counted"], twice["duplicates"]) == (1_268, 1_178, 589)
    assert [twice[name] for name in COUNTS] == [once[name] for name in COUNTS]


def test_lines_that_cannot_be_read_are_counted_by_reason(
    tmp_path: Path, answers: dict[str, dict[str, Any]]
) -> None:
    text = gzip.decompress(TELEGRAF.logs[0].read_bytes())
    first = text.split(b"\n")[0]
    junk = [b"", b"Caused by: java.io.IOException", first[:300], b"\xff" * 10, b"x" * (9 << 20)]
    path = tmp_path / "broker-1.log"
    path.write_bytes(text + b"\n".join(junk) + b"\n")
    answer = found([*TELEGRAF.arguments()[:-1], str(path)])
    assert answer["lines"] == 634 + 5
    assert answer["unreadable_reasons"] == {
        "no 'Completed request:' near the start": 3,
        "line longer than 4194304 bytes": 1,
        "not valid JSON (cut in half, or not UTF-8)": 1,
    }
    assert answer["unreadable"] == 5
    parser, readable = RequestLogParser(), 0
    for line in text.splitlines():
        with contextlib.suppress(Unreadable):
            parser.parse(line)
            readable += 1
    assert answer["lines"] == readable + answer["unreadable"]
    assert [answer[name] for name in COUNTS] == [answers["jmx-telegraf"][name] for name in COUNTS]


def test_the_broker_comes_from_the_option_the_name_or_the_folder(tmp_path: Path) -> None:
    log = TELEGRAF.logs[0].read_bytes()
    quotas = ["replay", "--show", "wrong", "--quotas", str(DATA / "jmx-telegraf" / "quotas.yaml")]
    in_folder = tmp_path / "broker-7" / "kafka-request.log.gz"
    in_folder.parent.mkdir()
    in_folder.write_bytes(log)
    in_name = tmp_path / "broker-7" / "kafka-broker12-request.log.gz"
    in_name.write_bytes(log)
    for arguments, broker_id in (
        ([str(in_folder)], 7),
        ([str(in_name)], 12),
        (["--broker", "3", str(in_name)], 3),
    ):
        assert {row["broker_id"] for row in found([*quotas, *arguments])["wrong"]} == {broker_id}


def test_brokers_do_not_share_buckets(tmp_path: Path, answers: dict[str, dict[str, Any]]) -> None:
    other = tmp_path / "broker-2.kafka-request.log.gz"
    other.write_bytes(TELEGRAF.logs[0].read_bytes())
    both, one = found([*TELEGRAF.arguments(), str(other)]), answers["jmx-telegraf"]
    for quota_type in ("produce", "fetch", "request"):
        of_both, of_one = both["by_type"][quota_type], one["by_type"][quota_type]
        assert [of_both[name] for name in COUNTS] == [2 * of_one[name] for name in COUNTS]
    # One line that creates a topic: with the controller's one bucket it is a copy of itself.
    assert both["by_type"]["controller_mutation"] == one["by_type"]["controller_mutation"]


def test_no_broker_id(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"")
    quotas = str(DATA / "jmx-telegraf" / "quotas.yaml")
    code, out, err = run(["replay", "--quotas", quotas, str(log)])
    assert (code, out) == (1, "")
    assert err == f"kquota: {log}: no broker-<id> in the name: say which broker with --broker ID\n"
    answer = found(["replay", "--quotas", quotas, "--broker", "1", str(log)])
    assert (answer["lines"], answer["decisions"], answer["requests_judged"]) == (0, 0, 0)


def test_missing_files(tmp_path: Path) -> None:
    gone = tmp_path / "broker-1.log"
    quotas = DATA / "jmx-telegraf" / "quotas.yaml"
    assert run(["replay", "--quotas", str(quotas), str(gone)]) == (
        1, "", f"kquota: {gone}: cannot be read: No such file or directory\n",
    )  # fmt: skip
    assert run(["replay", "--quotas", str(gone), str(TELEGRAF.logs[0])]) == (
        1, "", f"kquota: {gone}: cannot be read: No such file or directory\n",
    )  # fmt: skip


def test_damaged_files(tmp_path: Path) -> None:
    whole = TELEGRAF.logs[0].read_bytes()
    path = tmp_path / "broker-1.log.gz"
    arguments = [*TELEGRAF.arguments()[:-1], str(path)]
    path.write_bytes(whole[:20_000])
    assert run(arguments) == (
        1, "", f"kquota: {path}: the compressed file ends in the middle: fetch it again\n",
    )  # fmt: skip
    # A gzip header, and a first block of type 3, which there is not.
    path.write_bytes(b"\x1f\x8b\x08" + b"\x00" * 6 + b"\xff" + b"\x07" * 20)
    assert run(arguments) == (1, "", f"kquota: {path}: the compressed file is damaged: fetch it again\n")
    path.write_bytes(whole[:-8] + b"\x00" * 4 + whole[-4:])
    assert run(arguments)[2].startswith(f"kquota: {path}: cannot be read: CRC check failed ")
    path.write_bytes(b"[2026-11-21")
    assert run(arguments) == (
        1, "", f"kquota: {path}: cannot be read: Not a gzipped file (b'[2')\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--broker-version", "new"], "--broker-version: 'new', expected e.g. 3.9 or 3.7.2"),
        (["--broker-version", "4"], "--broker-version: '4', expected e.g. 3.9 or 3.7.2"),
        (["--window-num", "0"], "--window-num and --window-size-seconds: expected 1 or more"),
        (["--window-size-seconds", "0"], "--window-num and --window-size-seconds: expected 1 or more"),
        (
            ["--log-time-zone", "Mars/Base"],
            "--log-time-zone: 'Mars/Base' is no time zone, expected a name such as UTC or Europe/Berlin",
        ),
        (
            ["--log-time-zone", "../UTC"],
            "--log-time-zone: '../UTC' is no time zone, expected a name such as UTC or Europe/Berlin",
        ),
    ],
)
def test_wrong_options(options: list[str], problem: str) -> None:
    assert run(TELEGRAF.arguments(*options)) == (1, "", f"kquota: {problem}\n")


def test_usage() -> None:
    with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(io.StringIO()) as err:
        main(["replay", "--broker", "one", "x.log"])
    assert stopped.value.code == 2
    assert err.getvalue().splitlines() == [
        "kquota replay: argument --broker: 'one', expected a whole number",
        "kquota replay --help shows the usage",
    ]


def test_a_file_that_is_no_request_log_is_an_error(tmp_path: Path) -> None:
    quotas = str(DATA / "jmx-telegraf" / "quotas.yaml")
    other = tmp_path / "broker-2.log"
    other.write_text("hello\nworld\n", encoding="utf-8")
    assert run(["replay", str(other), "--quotas", quotas]) == (
        1,
        "",
        (
            f"kquota: {other}: no request in 2 lines, expected a request log "
            "(2 x no 'Completed request:' near the start)\n"
        ),
    )
