"""Brokers of Kafka 3.7 and 4.1, each judged with its own sample ring, agree with the replay."""

from __future__ import annotations

import gzip

import pytest

from tests.support.logs.captures import KRAFT41, ZK37, Capture, limited_produces
from tests.support.places import DATA

BOTH = pytest.mark.parametrize("capture", [ZK37, KRAFT41], ids=lambda capture: str(capture.name))


@BOTH
def test_verdicts_are_the_brokers(capture: Capture) -> None:
    found = limited_produces(capture)
    wrong = found.false_positive + found.false_negative
    assert found.agreeing >= 0.9995 * found.requests_judged
    assert wrong <= 0.01 * found.throttled_by_broker
    assert found.throttled_by_broker > 1_000
    # The uncertain ones are few, and with them nearly the same holds.
    every = found.requests_judged + found.uncertain
    assert found.uncertain <= 0.05 * every
    assert wrong + found.uncertain_wrong <= 0.002 * every
    assert wrong + found.uncertain_wrong <= 0.01 * found.throttled_by_broker


def test_counts_of_3_7() -> None:
    found = limited_produces(ZK37)
    assert (found.requests_judged, found.agreeing, found.false_positive, found.false_negative) == (
        10_452, 10_452, 0, 0,
    )  # fmt: skip
    assert (found.throttled_by_broker, found.throttled_by_model) == (3_850, 3_850)
    assert (found.uncertain, found.uncertain_wrong, found.inferred, found.excluded) == (143, 21, 0, 0)
    error = found.as_dict()["throttle_error_ms"]
    assert error == {"median": 0, "p90": 1, "p99": 2, "max": 26}


def test_counts_of_4_1() -> None:
    found = limited_produces(KRAFT41)
    assert (found.requests_judged, found.agreeing, found.false_positive, found.false_negative) == (
        10_122, 10_122, 0, 0,
    )  # fmt: skip
    assert (found.throttled_by_broker, found.throttled_by_model) == (5_927, 5_927)
    assert (found.uncertain, found.uncertain_wrong, found.inferred, found.excluded) == (169, 6, 0, 0)
    error = found.as_dict()["throttle_error_ms"]
    assert error == {"median": 0, "p90": 1, "p99": 2, "max": 111}


@pytest.mark.parametrize(("capture", "lines"), [(ZK37, 13_187), (KRAFT41, 13_217)])
def test_what_a_capture_holds(capture: Capture, lines: int) -> None:
    [log] = (DATA / capture.name).glob("broker-*.gz")
    assert log.stat().st_size < 900_000
    assert gzip.decompress(log.read_bytes()).count(b"\n") == lines
    # Eight limits of seven entities; the edit ends one of them and is the ninth.
    quotas = (DATA / capture.name / "quotas.yaml").read_text(encoding="utf-8")
    assert (quotas.count("- user:"), quotas.count("to_ms: null")) == (9, 8)
