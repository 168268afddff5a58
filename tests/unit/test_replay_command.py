"""`kquota replay` over what real brokers logged: its verdicts are theirs."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota_spark.cli.main import main
from kquota_spark.formats.request_log import RequestLogParser, Unreadable

DATA = Path(__file__).parents[1] / "data"


class Capture(NamedTuple):
    """A run of brokers, see the README of the data."""

    name: str
    lines: int
    options: tuple[str, ...] = ()

    @property
    def logs(self) -> list[Path]:
        return sorted((DATA / self.name).glob("*.gz"))

    def arguments(self, *more: str) -> list[str]:
        quotas = str(DATA / self.name / "quotas.yaml")
        return ["replay", "--quotas", quotas, *self.options, *more, *map(str, self.logs)]


LEVELS = Capture("zk39-levels", 12_202 + 11_667, ("--apply-lag-ms", "95"))
PLAIN = Capture(
    "zk39-plain", 7_804, ("--apply-lag-ms", "95", "--window-num", "5", "--window-size-seconds", "2")
)
KRAFT = Capture("kraft39", 9_546)
TELEGRAF = Capture("jmx-telegraf", 634)
CAPTURES = (LEVELS, PLAIN, KRAFT, TELEGRAF)
ALL = pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: str(capture.name))
COUNTS = (
    "requests_judged", "throttled_by_broker", "throttled_by_model", "agreeing", "false_positive",
    "false_negative", "near_limit", "uncertain", "uncertain_wrong", "inferred", "excluded",
)  # fmt: skip


def run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def found(arguments: Sequence[str]) -> dict[str, Any]:
    code, out, err = run([*arguments, "--output", "json"])
    assert (code, err) == (0, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """Each capture replayed once, with the list of what is wrong."""
    return {capture.name: found(capture.arguments("--show", "wrong")) for capture in CAPTURES}


def wrong_of(tally: dict[str, Any]) -> int:
    return int(tally["false_positive"] + tally["false_negative"] + tally["uncertain_wrong"])


def agreement_of(*tallies: dict[str, Any]) -> float:
    """Share of the verdicts, certain or not, that are the broker's."""
    compared = sum(tally["requests_judged"] + tally["uncertain"] for tally in tallies)
    return float(1.0 - sum(map(wrong_of, tallies)) / compared)


def test_agreement_over_all_logs(answers: dict[str, dict[str, Any]]) -> None:
    produce = [answer["by_type"]["produce"] for answer in answers.values()]
    assert agreement_of(*produce) >= 0.998
    assert sum(tally["requests_judged"] for tally in produce) > 25_000
    throttled = sum(tally["throttled_by_broker"] for tally in produce)
    assert throttled > 6_500
    assert sum(map(wrong_of, produce)) <= 0.01 * throttled


@ALL
def test_agreement_of_each_log(answers: dict[str, dict[str, Any]], capture: Capture) -> None:
    answer = answers[capture.name]
    for tally in (answer["by_type"]["produce"], answer["by_type"]["fetch"]):
        assert agreement_of(tally) >= 0.985
    error = answer["by_type"]["produce"]["throttle_error_ms"]
    assert error["median"] <= 1
    assert error["p90"] <= 3
    assert error["median"] <= error["p90"] <= error["p99"] <= error["max"]


@ALL
def test_few_verdicts_are_uncertain(answers: dict[str, dict[str, Any]], capture: Capture) -> None:
    tally = answers[capture.name]
    assert tally["uncertain"] <= 0.03 * (tally["requests_judged"] + tally["uncertain"])


@ALL
def test_counts_add_up(answers: dict[str, dict[str, Any]], capture: Capture) -> None:
    answer = answers[capture.name]
    assert (answer["command"], answer["version"]) == ("kquota replay", 1)
    assert (answer["lines"], answer["unreadable"], answer["unreadable_reasons"]) == (capture.lines, 0, {})
    assert answer["duplicates"] == 0
    verdicts = ("requests_judged", "uncertain", "inferred", "excluded")
    assert answer["counted"] == sum(answer[name] for name in verdicts)
    outcomes = ("agreeing", "false_positive", "false_negative")
    assert answer["requests_judged"] == sum(answer[name] for name in outcomes)
    for name in COUNTS:
        assert answer[name] == answer["by_type"]["produce"][name] + answer["by_type"]["fetch"][name]
    assert 0 < answer["decisions"] < answer["counted"]


@ALL
def test_the_wrong_ones_are_listed_each_with_a_cause(
    answers: dict[str, dict[str, Any]], capture: Capture
) -> None:
    answer = answers[capture.name]
    wrong = answer["wrong"]
    certain = [row for row in wrong if row["is_certain"]]
    assert len(wrong) == wrong_of(answer)
    assert len(certain) == answer["false_positive"] + answer["false_negative"]
    for row in wrong:
        assert (row["throttle_ms"] > 0) != (row["observed_throttle_ms"] > 0)
        assert row["cause"]
        assert row["limit_per_s"] > 0
        assert row["bucket_user"] or row["bucket_client_id"]
    false_positives = [row for row in certain if row["throttle_ms"] > 0]
    assert len(false_positives) == answer["false_positive"]


def test_the_wrong_ones_as_text(answers: dict[str, dict[str, Any]]) -> None:
    code, out, err = run(TELEGRAF.arguments("--show", "wrong"))
    assert (code, err) == (0, "")
    summary = run(TELEGRAF.arguments())[1]
    assert summary.startswith("634 lines, 0 unreadable, 588 counted\n")
    assert out.startswith(summary)
    listed = out.removeprefix(summary)
    assert max(map(len, listed.splitlines())) <= 100
    # A line goes on under its text, behind the 25 columns of its time.
    lines = listed.replace("\n" + " " * 25, " ").splitlines()
    for line, row in zip(lines, answers["jmx-telegraf"]["wrong"], strict=True):
        sure = "certain" if row["is_certain"] else "uncertain"
        assert line == (
            f"{row['record_time']} broker 1 produce {row['bucket_client_id']}: {row['quota_used_percent']} % "
            f"of quota, ours {row['throttle_ms']} ms, broker {row['observed_throttle_ms']} ms ({sure}): "
            f"{row['cause']}"
        )


def test_the_same_input_gives_the_same_answer(answers: dict[str, dict[str, Any]]) -> None:
    assert found(TELEGRAF.arguments("--show", "wrong")) == answers["jmx-telegraf"]


def test_the_older_ring_does_not_fit_these_brokers(answers: dict[str, dict[str, Any]]) -> None:
    for capture in (LEVELS, PLAIN, KRAFT):
        right = answers[capture.name]["by_type"]["produce"]
        older = found(capture.arguments("--broker-version", "3.7.2"))["by_type"]["produce"]
        assert agreement_of(older) < 0.99 < agreement_of(right)
        assert wrong_of(older) > 10 * max(1, wrong_of(right))


def test_wrong_window_settings_do_not_fit(answers: dict[str, dict[str, Any]]) -> None:
    arguments = Capture(PLAIN.name, PLAIN.lines, ("--apply-lag-ms", "95")).arguments()
    produce = found(arguments)["by_type"]["produce"]
    assert agreement_of(produce) < 0.95 < agreement_of(answers[PLAIN.name]["by_type"]["produce"])


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
    assert (twice["lines"], twice["counted"], twice["duplicates"]) == (1_268, 1_176, 588)
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
    # The line of 9 MB is read in pieces of 8 and 1 MB.
    assert answer["lines"] == 634 + 6
    assert answer["unreadable_reasons"] == {
        "no 'Completed request:' near the start": 4,
        "line longer than 4194304 bytes": 1,
        "not valid JSON (cut in half, or not UTF-8)": 1,
    }
    assert answer["unreadable"] == 6
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
    assert [both[name] for name in COUNTS] == [2 * one[name] for name in COUNTS]


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
        (["--window-size-seconds", "-1"], "--window-num and --window-size-seconds: expected 1 or more"),
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
    assert err.getvalue().splitlines()[-1] == (
        "kquota replay: error: argument --broker: 'one', expected a whole number"
    )
