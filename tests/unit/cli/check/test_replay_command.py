"""`kquota replay` over what real brokers logged: its verdicts are theirs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.logs.replayed_captures import (
    CAPTURES,
    COUNTS,
    KRAFT,
    LEVELS,
    PLAIN,
    TELEGRAF,
    Capture,
    found,
    run,
)

ALL = pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: str(capture.name))


def wrong_of(tally: dict[str, Any]) -> int:
    return int(tally["false_positive"] + tally["false_negative"] + tally["uncertain_wrong"])


def agreement_of(*tallies: dict[str, Any]) -> float:
    """Share of the verdicts, certain or not, that are the broker's."""
    compared = sum(tally["requests_judged"] + tally["uncertain"] for tally in tallies)
    return float(1.0 - sum(map(wrong_of, tallies)) / compared)


def test_agreement_over_all_logs(answers: dict[str, dict[str, Any]]) -> None:
    produce = [answer["by_type"]["produce"] for answer in answers.values()]
    assert agreement_of(*produce) >= 0.998
    assert sum(tally["requests_judged"] for tally in produce) > 24_500
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
    for name in ("produce", "fetch", "controller_mutation"):
        tally = answers[capture.name]["by_type"][name]
        assert tally["uncertain"] <= 0.055 * (tally["requests_judged"] + tally["uncertain"])


@ALL
def test_counts_add_up(answers: dict[str, dict[str, Any]], capture: Capture) -> None:
    answer = answers[capture.name]
    assert (answer["command"], answer["version"]) == ("kquota replay", 1)
    assert (answer["lines"], answer["unreadable"], answer["unreadable_reasons"]) == (capture.lines, 0, {})
    assert answer["duplicates"] == 0
    verdicts = ("requests_judged", "uncertain", "inferred", "excluded")
    assert answer["verdicts"] == sum(answer[name] for name in verdicts)
    # A line has a verdict for each quota that was asked: bytes, thread time, and every topic that it changed.
    assert answer["counted"] <= answer["verdicts"] <= 2 * answer["lines"]
    outcomes = ("agreeing", "false_positive", "false_negative")
    assert answer["requests_judged"] == sum(answer[name] for name in outcomes)
    for name in COUNTS:
        assert answer[name] == sum(tally[name] for tally in answer["by_type"].values())
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
        assert (row["throttle_by_replay_ms"] > 0) != (row["throttle_ms"] > 0)
        assert row["cause"]
        assert row["limit_per_s"] > 0
        assert row["bucket_user"] or row["bucket_client_id"]
    false_positives = [row for row in certain if row["throttle_by_replay_ms"] > 0]
    assert len(false_positives) == answer["false_positive"]


def test_the_wrong_ones_as_text(answers: dict[str, dict[str, Any]]) -> None:
    code, out, err = run(TELEGRAF.arguments("--show", "wrong"))
    assert (code, err) == (0, "")
    summary = run(TELEGRAF.arguments())[1]
    assert summary.startswith("634 lines, 0 unreadable, 589 counted\n")
    assert out.startswith(summary)
    listed = out.removeprefix(summary)
    assert max(map(len, listed.splitlines())) <= 100
    # A line goes on under its text, behind the 25 columns of its time.
    lines = listed.replace("\n" + " " * 25, " ").splitlines()
    for line, row in zip(lines, answers["jmx-telegraf"]["wrong"], strict=True):
        sure = "certain" if row["is_certain"] else "uncertain"
        assert line == (
            f"{row['record_time']} broker 1 produce {row['bucket_client_id']}: {row['quota_used_percent']} % "
            f"of quota, {row['throttle_by_replay_ms']} ms by replay, {row['throttle_ms']} ms by the broker ({sure}): "
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
