"""`kquota resolve`: what governs, from which source, at which moment; whole outputs."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.model.quotas.group_callbacks import GroupedUserCallback
from tests.support.places import DATA
from tests.support.programs.command_output import as_json, run, shown

AT = ("--at", "2026-11-21T05:45:00Z")
FILE = ("--quotas", "quotas.yaml")
GROUPED = "kquota_spark.model.quotas.group_callbacks:GroupedUserCallback"

ALICE = """\
user alice, client id etl-1, as of 2026-11-21 05:45:00 UTC, by file quotas.yaml
type          limit  rule             level  bucket                   overrides
produce    200 kB/s  u/alice/c/etl-1      1  alice / etl-1  100 kB/s, 70.0 kB/s
fetch      400 kB/s  u/alice/c/etl-1      1  alice / etl-1   150 kB/s, 200 kB/s
request   unlimited  -                    -  client etl-1                     -
mutation  unlimited  -                    -  client etl-1                     -
rule: u/ user, c/ client id, * the default; limits hold per broker (mutations: at the controller)
"""
WALK = """\
user alice, client id "", as of 2026-11-21 05:45:00 UTC, by file quotas.yaml
type      level  rule             limit  what became of it
produce       2  u/alice/c/*   100 kB/s  has a quota, but the broker does not look here
produce       8  c/*          70.0 kB/s  has a quota, but the broker does not look here
produce       -  -            unlimited  nothing limits this type
fetch         2  u/alice/c/*   150 kB/s  has a quota, but the broker does not look here
fetch         8  c/*           200 kB/s  has a quota, but the broker does not look here
fetch         -  -            unlimited  nothing limits this type
request       -  -            unlimited  nothing limits this type
mutation      -  -            unlimited  nothing limits this type
rule: u/ user, c/ client id, * the default; limits hold per broker (mutations: at the controller)
note: produce: users/alice/clients/<default>, 100 kB/s, does not reach an empty client id
      (KAFKA-13341)
note: produce: clients/<default>, 70.0 kB/s, does not reach an empty client id (KAFKA-13341)
note: fetch: users/alice/clients/<default>, 150 kB/s, does not reach an empty client id
      (KAFKA-13341)
note: fetch: clients/<default>, 200 kB/s, does not reach an empty client id (KAFKA-13341)
"""


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quotas of a real capture, in the current directory."""
    monkeypatch.chdir(DATA / "zk39-levels")


def test_every_type_with_what_its_rule_overrides() -> None:
    assert shown("resolve", "--user", "alice", "--client-id", "etl-1", *AT, *FILE) == ALICE


def test_the_walk_shows_each_value_and_the_hole_of_an_empty_client_id() -> None:
    asked = ("resolve", "--user", "alice", "--client-id", "", *AT, *FILE)
    assert shown(*asked, "--walk") == WALK
    assert shown(*asked, "--all") == WALK


def test_omitting_what_is_overridden() -> None:
    asked = ("resolve", "--user", "alice", "--client-id", "etl-1", "--type", "fetch", *AT, *FILE)
    assert shown(*asked, "--omit-overridden").splitlines()[1:3] == [
        "type      limit  rule             level  bucket",
        "fetch  400 kB/s  u/alice/c/etl-1      1  alice / etl-1",
    ]
    (row,) = as_json(*asked)["rows"]
    assert row.pop("overridden") == [
        {"level": 2, "rule": "users/alice/clients/<default>", "limit": 150_000.0},
        {"level": 8, "rule": "clients/<default>", "limit": 200_000.0},
    ]
    assert as_json(*asked, "--omit-overridden")["rows"] == [row]


def test_a_value_on_every_level_fits(tmp_path: Path) -> None:
    names = [(user, client) for user in ("u", "<default>", "") for client in ("c", "<default>", "")][:-1]
    entries = [
        f"- {{user: {user or 'null'}, client_id: {client or 'null'}, type: request_percentage, "
        f"value: {level}.2345678}}\n"
        for level, (user, client) in enumerate(names, 1)
    ]
    (tmp_path / "quotas.yaml").write_text("".join(entries), encoding="utf-8")
    asked = (
        "resolve",
        "--user",
        "u",
        "--client-id",
        "c",
        "--type",
        "request",
        "--quotas",
        str(tmp_path / "quotas.yaml"),
    )
    text = shown(*asked)
    assert "request  1.2345678 %  u/u/c/c      1  u / c   2.2345678 %, 3.2345678 %, +5\n" in text
    assert text.endswith("\n+n: so many more values are overridden, see --walk\n")
    assert len(as_json(*asked)["rows"][0]["overridden"]) == 7
    assert "see --walk" not in shown(*asked, "--walk") + shown(*asked, "--omit-overridden")


def test_the_json_envelope() -> None:
    answer = as_json("resolve", "--user", "ctl", "--client-id", "c", "--type", "controller_mutation",
                     "--walk", *AT, *FILE)  # fmt: skip
    (row,) = answer.pop("rows")
    assert answer == {
        "command": "kquota resolve", "version": 1, "user": "ctl", "client_id": "c",
        "at": "2026-11-21T05:45:00Z", "source": "file quotas.yaml", "known_through": None,
        "callback": None, "broker_id": None, "notes": [],
    }  # fmt: skip
    walk = row.pop("walk")
    # 1795239656876 ms is the edit of ctl; clients/<default> changed last, at 1795239738928 ms.
    assert row == {
        "quota_type": "controller_mutation", "key": "controller_mutation_rate", "limit": 1.0,
        "unit": "mutations/s", "rule": "users/ctl", "level": 3, "rule_version": 1_795_239_656_876,
        "valid_from": "2026-11-21T05:42:18.928Z", "valid_to": None, "bucket_user": "ctl",
        "bucket_client_id": "", "bucket_tags": {}, "overridden": [],
    }  # fmt: skip
    assert [step["level"] for step in walk] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert walk[2] == {"level": 3, "rule": "users/ctl", "limit": 1.0, "standing": "governs"}
    assert walk[7] == {"level": 8, "rule": "clients/<default>", "limit": None, "standing": "other_keys"}


@pytest.mark.parametrize(
    ("at", "limit"),
    [
        # bob was cut from 250 kB/s to 120 kB/s at 1795239700930 ms, 05:41:40.930 UTC.
        ("1795239700929", 250_000.0),
        ("1795239700930", 120_000.0),
        ("2026-11-21T05:41:40Z", 250_000.0),
        ("2026-11-21T06:41:41+01:00", 120_000.0),
        ("1s ago", 120_000.0),
    ],
)
def test_the_past(at: str, limit: float) -> None:
    answer = as_json("resolve", "--user", "bob", "--client-id", "c", "--type", "produce", "--at", at, *FILE)
    assert answer["rows"][0]["limit"] == limit


def test_nobody_named_is_a_client_that_has_not_logged_in_and_sends_no_id() -> None:
    answer = as_json("resolve", "--type", "fetch", *AT, *FILE)
    assert (answer["user"], answer["client_id"]) == ("ANONYMOUS", "")
    assert answer["notes"] == [
        "no --user: ANONYMOUS, as brokers call clients that have not logged in",
        "no client id given: shown for an empty one",
        "fetch: clients/<default>, 200 kB/s, does not reach an empty client id (KAFKA-13341)",
    ]
    assert as_json("resolve", "--user", "", "--type", "fetch", *AT, *FILE)["user"] == "ANONYMOUS"


def test_a_principal_with_its_type_is_met_with_a_question() -> None:
    answer = as_json("resolve", "--user", "User:alice", "--client-id", "etl-1", *AT, *FILE)
    assert answer["notes"] == ["quotas have names without the principal's type: did you mean --user alice?"]


def test_hostile_names_stay_on_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(
        '- {user: "\\e[31mred\\nnext", client_id: "<default>", type: producer_byte_rate, value: 5}\n',
        encoding="utf-8",
    )
    hostile = ("--user", "\x1b[31mred\nnext", "--client-id", "日本語" * 30)
    text = shown("resolve", *hostile, *AT, *FILE)
    assert "\x1b" not in text
    assert text.startswith("user \\x1b[31mred\\x0anext, client id 日本語")
    assert " \\x1b[31mre" in text.splitlines()[3]  # its bucket, cut
    (row, *_) = as_json("resolve", *hostile, *AT, *FILE)["rows"]
    assert (row["bucket_user"], row["bucket_client_id"]) == ("\x1b[31mred\nnext", "日本語" * 30)
    assert (row["rule"], row["limit"]) == ("users/%1B%5B31mred%0Anext/clients/<default>", 5.0)


def test_a_callback_decides_instead_of_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(
        "- {user: pay_, type: producer_byte_rate, value: 100000}\n", encoding="utf-8"
    )
    asked = ("resolve", "--user", "pay_bob", "--client-id", "c", "--type", "produce", *AT, *FILE)
    answer = as_json(*asked, "--callback", GROUPED)
    (row,) = answer["rows"]
    assert (row["limit"], row["rule"], row["level"]) == (100_000.0, GROUPED, None)
    assert (row["bucket_tags"], row["overridden"]) == ({"group": "pay"}, [])
    assert (answer["callback"], answer["broker_id"]) == (GROUPED, 1)
    assert "group=pay" in shown(*asked, "--callback", GROUPED)
    # With another separator pay_bob is in no group.
    (row,) = as_json(*asked, "--callback", GROUPED, "--callback-option", "separator=:")["rows"]
    assert (row["limit"], row["bucket_tags"]) == (None, {})


def test_the_callback_of_the_settings_and_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(
        '- {user: "pay:", type: producer_byte_rate, value: 100000}\n', encoding="utf-8"
    )
    (tmp_path / "kquota.yaml").write_text(
        f'quotas: {{callback: "{GROUPED}", callback_options: {{separator: ":"}}}}\n', encoding="utf-8"
    )
    asked = ("resolve", "--user", "pay:bob", "--type", "produce", "--config", "kquota.yaml", *FILE)
    assert as_json(*asked)["rows"][0]["bucket_tags"] == {"group": "pay"}
    # The options belong to the settings' callback: another one, named by an option, starts without.
    assert as_json(*asked, "--callback", GROUPED)["rows"][0]["bucket_tags"] == {}
    # None at all: Kafka's own walk, where the entity `pay:` is no quota of pay:bob.
    assert as_json(*asked, "--callback", "")["callback"] is None


def test_a_broken_callback_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise OSError("no\nway")

    monkeypatch.setattr(GroupedUserCallback, "quota_metric_tags", raising)
    code, out, err = run("resolve", "--type", "fetch", "--callback", GROUPED, *FILE)
    assert (code, out) == (1, "")
    assert err == (
        f"kquota: quota callback {GROUPED}: quota_metric_tags(fetch, User:ANONYMOUS, ) raised OSError: no way\n"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--tables", "t"], "--quotas and --tables: quotas come from one source, name one of them"),
        (["--command-config", "f"], "--command-config: only with --bootstrap-server"),
        (["--callback-option", "x"], "--callback-option: 'x', expected name=value"),
        (["--broker-version", "new"], "--broker-version: 'new', expected e.g. 3.9 or 3.7.2"),
        (["--window-num", "0"], "--window-num and --window-size-seconds: expected 1 or more"),
    ],
)
def test_options_that_make_no_sense(options: list[str], problem: str) -> None:
    assert run("resolve", "--user", "u", *FILE, *options) == (1, "", f"kquota: {problem}\n")


def test_usage() -> None:
    for arguments in (["--at", "soon"], ["--type", "ip"], ["--walk", "--omit-overridden"]):
        with pytest.raises(SystemExit) as stopped, contextlib.redirect_stderr(io.StringIO()):
            main(["resolve", *arguments])
        assert stopped.value.code == 2


def test_nothing_slow_is_loaded() -> None:
    code = """
import sys
from kquota_spark.cli.main import main
assert main(sys.argv[1:]) == 0
slow = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "duckdb", "deltalake", "kafka", "confluent_kafka", "kazoo"}
print(sorted(slow & set(sys.modules)), file=sys.stderr)
"""
    for command in ("resolve", "explain"):
        done = subprocess.run(
            [sys.executable, "-c", code, command, "--quotas", str(DATA / "zk39-levels" / "quotas.yaml")],
            cwd=DATA.parents[1], capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stderr == "[]\n"
