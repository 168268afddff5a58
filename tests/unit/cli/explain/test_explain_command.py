"""`kquota explain`: whole texts, the arithmetic of its example, and the notes where they belong."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kquota_spark.cli.main import main
from kquota_spark.cli.text.page import folded
from kquota_spark.formats.text.escape import width
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant
from kquota_spark.model.measure.worked_example import Moment, worked_example
from kquota_spark.model.quotas.quota_types import QuotaType
from tests.support.places import DATA
from tests.support.programs.command_output import as_json, run, shown

AT = ("--at", "2026-11-21T05:41:41Z")
FILE = ("--quotas", "quotas.yaml")

BOB = """\
produce quota of user bob, client id svc-x
as of 2026-11-21 05:41:41 UTC, by file quotas.yaml

├─ 1  users/bob/clients/svc-x                       there is no such entity
├─ 2  users/bob/clients/<default>                   there is no such entity
├─ 3  users/bob                           120 kB/s  governs
├─ 4  users/<default>/clients/svc-x                 there is no such entity
├─ 5  users/<default>/clients/<default>   120 kB/s  a more specific level governs
├─ 6  users/<default>                     180 kB/s  a more specific level governs
├─ 7  clients/svc-x                                 there is no such entity
└─ 8  clients/<default>                  70.0 kB/s  a more specific level governs

limit    120 kB/s: 120,000 bytes per second on each broker; set by users/bob
holds    since 05:41:40 UTC
bucket   every client id of user bob that no more specific rule takes out; each broker has such a
         bucket of its own
measure  11 samples of 1 s: a window of 10 to 12 s (brokers 3.8+); throttle = sum / limit - window
example  after 11 s without traffic 1.2 MB (1,200,000 bytes) may come at once
         1.8 MB (1,800,000 bytes) at once: rate 1,800,000 / 10 s = 180 kB/s, limit 120 kB/s
         throttle 1,800,000 / 120,000 - 10 s = 5.00 s
         5 s later the burst is still in the window: one more request is throttled by 5.00 s again
note     exactly the limit, once per sample, is throttled too: by 1.00 s each from 10 s on
"""
HOLE = """\
fetch quota of user alice, client id ""
no client id given: shown for an empty one
as of 2026-11-21 05:41:41 UTC, by file quotas.yaml

|- 2  users/alice/clients/<default>      150 kB/s  has a quota, but the broker does not look here
|- 3  users/alice                                  there is no such entity
|- 5  users/<default>/clients/<default>            has no quota of this type
|- 6  users/<default>                              has no quota of this type
`- 8  clients/<default>                  200 kB/s  has a quota, but the broker does not look here

limit    none: unlimited
holds    since 05:40:56 UTC
bucket   user alice when it sends no client id; each broker has such a bucket of its own
note     defaults of client ids do not reach an empty client id (KAFKA-13341): 2 above
note     nothing limits this client; brokers that measure this type record it in the bucket above
"""


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quotas of a real capture, in the current directory."""
    monkeypatch.chdir(DATA / "zk39-levels")


class Terminal(io.TextIOWrapper):
    """A terminal of some encoding that keeps what it is sent."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


def on_terminal(monkeypatch: pytest.MonkeyPatch, encoding: str, *arguments: str) -> str:
    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(list(arguments)) == 0
    return terminal.text


def notes_of(*arguments: str) -> list[str]:
    notes: list[str] = as_json("explain", *arguments)["notes"]
    return notes


def test_the_whole_text() -> None:
    assert shown("explain", "--user", "bob", "--client-id", "svc-x", *AT, *FILE) == BOB


def test_plain_strokes_where_the_terminal_has_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    asked = ("explain", "--user", "alice", "--type", "fetch", *AT, *FILE)
    assert on_terminal(monkeypatch, "ascii", *asked) == HOLE


def test_colours_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = on_terminal(monkeypatch, "utf-8", "explain", "--user", "bob", "--client-id", "svc-x", *AT, *FILE)
    governs = "├─ 3  users/bob                           120 kB/s  governs"
    assert f"\n\x1b[32m{governs}\x1b[0m\n" in text
    for code in ("1", "2", "32", "33"):
        text = text.replace(f"\x1b[{code}m", "")
    assert text.replace("\x1b[0m", "") == BOB


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_hostile_and_long_names_fit(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    hostile = ("--user", "\x1b[2J日本語├" * 40, "--client-id", "é\u202e" * 60)
    for quota_type in QuotaType:
        text = on_terminal(monkeypatch, encoding, "explain", *hostile, "--type", quota_type.value, *AT, *FILE)
        assert max(map(width, text.splitlines())) <= 100
        assert not {"\x1b", "\u202e"} & set(text)


def test_json_says_the_same() -> None:
    answer = as_json("explain", "--user", "bob", "--client-id", "svc-x", *AT, *FILE)
    assert (answer["command"], answer["version"], answer["quota_type"]) == ("kquota explain", 1, "produce")
    assert (answer["limit"], answer["rule"], answer["level"]) == (120_000.0, "users/bob", 3)
    assert (answer["bucket_user"], answer["bucket_client_id"], answer["seen"]) == ("bob", "", None)
    assert (answer["window"], len(answer["walk"])) == ("3.8+/11x1000ms", 8)
    # 15 s of the limit over a window of 10 s: 1,800,000 / 120,000 x 1,000 - 10,000 = 5,000.
    assert answer["example"] == {
        "limit_per_s": 120_000.0, "free_amount": 1_200_000, "burst_amount": 1_800_000,
        "window_ms": 10_000, "rate_per_s": 180_000.0, "throttle_ms": 5_000,
    }  # fmt: skip


def test_the_brokers_windows_and_version_come_from_options_or_settings(tmp_path: Path) -> None:
    asked = ("explain", "--user", "bob", "--client-id", "c", *AT, *FILE)
    windows = ("--window-num", "5", "--window-size-seconds", "2", "--broker-version", "3.7")
    text = shown(*asked, *windows)
    assert "5 samples of 2 s: a window of 8 to 10 s (brokers <=3.7)" in text
    # 8 s x 120,000 = 960,000 are free; 12 s of it: 1,440,000 / 120,000 x 1,000 - 8,000 = 4,000.
    assert "after 10 s without traffic 960 kB (960,000 bytes) may come at once" in text
    assert "throttle 1,440,000 / 120,000 - 8 s = 4.00 s" in text
    config = tmp_path / "kquota.yaml"
    config.write_text(
        'broker: {quota_window_num: 5, quota_window_size_seconds: 2, version: "3.7"}\n', encoding="utf-8"
    )
    assert shown(*asked, "--config", str(config)) == text


def test_a_request_quota_is_capped_at_one_sample() -> None:
    text = shown("explain", "--user", "reqhog", "--client-id", "c", "--type", "request", *AT, *FILE)
    # 1 % is 10 ms of a thread in each second: 15 s of it are 150 ms.
    assert "limit    1 %: 10 ms of handler threads in each second, on each broker" in text
    assert "150 ms of handler time at once: rate 150 / 10 s = 1.5 %, limit 1 %" in text
    assert "throttle 150 / 10 - 10 s = 5.00 s, applied 1.00 s" in text


def test_mutations_fill_a_token_bucket() -> None:
    text = shown("explain", "--user", "ctl", "--client-id", "c", "--type", "controller_mutation", *AT, *FILE)
    assert "a token bucket of 11 s x 1/s = 11 mutations" in text
    assert "one bucket, at the active controller" in " ".join(text.split())
    assert "example" not in text


def test_notes_stand_where_they_apply() -> None:
    shared = "all users with this client id share the bucket: one of them can throttle the others"
    template = "a default: each other client id has this limit too, in a bucket of its own"
    request = "a request quota governs this client too: the broker throttles by the larger of the two"
    level_7 = notes_of("--user", "carol", "--client-id", "legacy", "--type", "fetch", *AT, *FILE)
    level_8 = notes_of("--user", "nobody", "--client-id", "new", "--type", "fetch", *AT, *FILE)
    under_request_quota = notes_of("--user", "reqhog", "--client-id", "c", *AT, *FILE)
    request_itself = notes_of("--user", "reqhog", "--client-id", "c", "--type", "request", *AT, *FILE)
    assert request_itself == []
    assert notes_of("--user", "nobody", "--client-id", "new", "--type", "request", *AT, *FILE) == [
        "nothing limits this client; brokers that measure this type record it in the bucket above",
        "a broker that has only seen quotas of users records it by user; of pairs alone, by the pair",
    ]
    assert [note in level_7 for note in (shared, template, request)] == [True, False, False]
    assert [note in level_8 for note in (shared, template, request)] == [True, True, False]
    assert [note in under_request_quota for note in (shared, template, request)] == [False, False, True]


def test_a_static_default_is_the_ninth_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text("", encoding="utf-8")
    asked = ("explain", "--user", "u", "--client-id", "c", *AT, *FILE, "--producer-default", "1000",
             "--broker-version", "2.8")  # fmt: skip
    assert "└─ 9  quota.producer.default             1.0 kB/s  governs\n" in shown(*asked)
    answer = as_json(*asked)
    assert (answer["level"], answer["rule"], answer["bucket_client_id"]) == (9, "quota.producer.default", "c")


@pytest.mark.parametrize(
    ("quota_type", "key", "note"),
    [
        # 2.1: round(inf) is the largest long, of which 32 bits are -1.
        ("produce", "producer_byte_rate",
         "a limit of 0 throttles nobody: the broker's throttle time does not come out above zero"),
        # min(largest long, 1,000) comes before those 32 bits.
        ("request", "request_percentage",
         "a limit of 0 throttles every request by one whole sample, the most that this quota may"),
        # The capacity is 11 x 0, so the first request leaves less than 0 and nothing fills that up.
        ("controller_mutation", "controller_mutation_rate",
         ("a limit of 0 never refills the bucket: below zero, mutations are refused for ever (not those of "
          "clients before 2.7)")),
    ],
)  # fmt: skip
def test_what_a_limit_of_zero_does(
    quota_type: str, key: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(f"- {{user: u, type: {key}, value: 0}}\n", encoding="utf-8")
    answer = as_json("explain", "--user", "u", "--client-id", "c", "--type", quota_type, *FILE)
    assert (answer["limit"], answer["example"], answer["notes"]) == (0.0, None, [note])


def test_a_request_throttle_is_capped_before_it_is_narrowed() -> None:
    # A billionth of a percent is 1e-8 ms a second. 2 ms in 10 s: 2 / 1e-8 s - 10 s = 199,999,990,000 ms, of which
    # 32 bits are negative; the cap of 1,000 ms comes first.
    found = worked_example(QuotaType.REQUEST, 1e-9, RateConfig())
    assert found is not None
    assert found.after == Moment(5_000, 2, 10_000, 1_000)


def test_the_arithmetic_is_rounded_as_java_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(
        "- {user: u, type: producer_byte_rate, value: 2000000}\n", encoding="utf-8"
    )
    # One sample is a window of 1 ms: 3,000 / 2,000,000 s - 1 ms is half a millisecond, and halves go up.
    text = shown("explain", "--user", "u", "--client-id", "c", "--window-num", "1", *FILE)
    assert "throttle 3,000 / 2,000,000 - 1 ms = 1 ms\n" in text


def test_a_file_that_is_not_there_is_one_line() -> None:
    code, out, err = run("explain", "--quotas", "gone.yaml")
    assert (code, out) == (1, "")
    assert err == "kquota: gone.yaml: cannot be read: No such file or directory\n"


def test_the_example_is_the_rings_own() -> None:
    # kafka-facts 1.4 A and E: 15 s at once are throttled by 5,000 ms; exactly the limit from 10 s on by 1,000.
    found = worked_example(QuotaType.PRODUCE, 1_000_000.0, RateConfig())
    assert found is not None
    assert found.burst == Moment(0, 15_000_000, 10_000, 5_000)
    assert found.after == Moment(5_000, 15_000_001, 10_000, 5_000)
    assert found.steady == Moment(10_000, 11_000_000, 10_000, 1_000)
    # One sample: its window is 1 ms at first, so 1.5 ms of the limit are throttled by 0.5 ms, rounded up.
    single = worked_example(QuotaType.PRODUCE, 1_000_000.0, RateConfig(1, 1_000, RingVariant.FROM_3_8))
    assert single is not None
    assert (single.free, single.burst) == (1_000, Moment(0, 1_500, 1, 1))
    for limit in (0.0, -1.0, float("nan"), float("inf")):
        assert worked_example(QuotaType.PRODUCE, limit, RateConfig()) is None


def test_wrapping_at_blanks() -> None:
    assert list(folded("aa bb 日本 cc", 5)) == ["aa bb", "日本", "cc"]
    assert list(folded("a23456789 b", 5)) == ["a2345", "6789", "b"]
    assert list(folded("a" * 100, 5)) == ["aaaaa", "aaaaa", "aaaaa", "aaaa…"], "four lines of one word"
    assert list(folded("", 5)) == [""]
