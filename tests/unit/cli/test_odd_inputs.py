"""What nobody means to ask `resolve`, `explain` and `replay` is one clear line and an exit code, never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import sys

import pytest

from kquota_spark.cli.main import main
from tests.support.places import DATA

FILE = ("--quotas", str(DATA / "zk39-levels" / "quotas.yaml"))


def refused(*arguments: str) -> str:
    """The last line of what a wrong usage gets."""
    with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(io.StringIO()) as err:
        main(list(arguments))
    assert stopped.value.code == 2
    return err.getvalue().splitlines()[0]


@pytest.mark.parametrize("command", ["resolve", "explain"])
@pytest.mark.parametrize(
    "at",
    [
        "253402300800000",  # one ms behind the year 9999
        "99999999999999d",
        "30000d",  # before 1970
        "1969-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_a_moment_that_no_table_holds_is_refused(command: str, at: str) -> None:
    assert refused(command, "--user", "bob", "--at", at, *FILE) == (
        f"kquota {command}: argument --at: {at!r}, expected a length of time (30s, 10m, 2h, 1d) or a time "
        "such as 2026-11-21T05:40:00Z, 1970 to 9999"
    )


@pytest.mark.parametrize("at", ["1970-01-01", "253402300799999"])
def test_the_first_and_the_last_moment_are_answered(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", "--user", "bob", "--at", at, *FILE]) == 0
    assert f"as of {'1970-01-01 00:00:00 UTC' if at == '1970-01-01' else '9999-12-31 23:59:59 UTC'}, " in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("option", ["--broker", "--apply-lag-ms"])
def test_a_negative_number_is_refused(option: str) -> None:
    problem = f"kquota replay: argument {option}: '-1', expected a whole number"
    assert refused("replay", "x.log", option, "-1", *FILE) == problem


def test_a_lag_of_quotas_that_come_with_their_own_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "x.log", "--broker", "1", "--apply-lag-ms", "95"]) == 1
    assert capsys.readouterr() == ("", "kquota: --apply-lag-ms: only with --quotas\n")


@pytest.mark.parametrize("command", [["resolve"], ["explain"], ["replay", "x.log", "--broker", "1"]])
def test_an_error_shows_no_character_that_a_terminal_acts_on(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--quotas", "\x1b[2Jgone\u202e\x85.yaml"]) == 1
    problem = "\\x1b[2Jgone\\u202e\\x85.yaml: cannot be read: No such file or directory"
    assert capsys.readouterr() == ("", f"kquota: {problem}\n")


@pytest.mark.parametrize("command", ["resolve", "explain"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_encoding_of_a_terminal(
    command: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    # Of all four lengths of UTF-8, and one that latin-1 has.
    assert (
        main([command, "--user", "a\xe9\u65e5\U0001f600", "--client-id", "\x7f", "--output", "json", *FILE])
        == 0
    )
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    answer = json.loads(buffer.getvalue().decode(encoding))
    assert (answer["user"], answer["client_id"]) == ("a\xe9\u65e5\U0001f600", "\x7f")


@pytest.mark.parametrize("servers", ["", ",", "a:9092,", " "])
def test_no_server_is_not_a_server_that_does_not_answer(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resolve", "--bootstrap-server", servers]) == 1
    problem = f"--bootstrap-server: {servers!r}, expected host:port,host:port"
    assert capsys.readouterr() == ("", f"kquota: {problem}\n")


@pytest.mark.parametrize(
    "command",
    [
        ("resolve",),
        ("explain", "--user", "a"),
        ("describe",),
        ("alter", "--user", "a", "--add", "producer_byte_rate=1"),
        ("context", "add", "c"),
        ("ship", "--file", "1=x"),
        ("init",),
    ],
)
def test_a_missing_port_is_one_line_at_once(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--bootstrap-server", "a:9092,localhost"]) == 1
    problem = "--bootstrap-server: localhost: no port, e.g. localhost:9092"
    assert capsys.readouterr() == ("", f"kquota: {problem}\n")


@pytest.mark.parametrize("command", ["resolve", "explain"])
@pytest.mark.parametrize("option", ["--user", "--client-id"])
def test_a_name_that_is_not_utf_8_is_refused(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # How Python hands on the byte 0xff of a command line; ZooKeeper would be asked for users/a%3F.
    assert main([command, option, "a\udcff", *FILE]) == 1
    problem = f"{option}: 'a\\udcff' is not UTF-8, as every name on the wire is"
    assert capsys.readouterr() == ("", f"kquota: {problem}\n")
