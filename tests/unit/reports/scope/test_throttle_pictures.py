"""Throttles one by one: replay beside broker in steps, and how long the throttles of each user were."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.reports.sections.trust import ThrottlePair
from tests.support.reports.gathered_report import gathered, jmx, throttled
from tests.support.tables.table_rows import request


def test_seconds_are_counted_by_the_steps_of_both_throttles(tmp_path: Path) -> None:
    seen = {"observed_total_throttle_ms": 100}
    rows = [
        throttled(1, 100, **seen),
        throttled(2, 104, **seen),
        # A cut of the quota: the broker's throttle is long, and the replay is not certain of its 0.
        throttled(3, 0, observed_throttle_ms=12_372, is_certain=False, **seen),
        # Nothing to compare: no throttle, none by a broker, only JMX.
        throttled(4, 0, **seen),
        throttled(5, 300, observed_total_throttle_ms=None),
        jmx(6, observed_throttle_ms=400),
    ]
    # Four steps an octave: log2 of 100 and of 104 is nearest to 6.75, that of 12,372 to 13.5.
    assert gathered(tmp_path, decisions=rows).throttle_pairs == (
        ThrottlePair(0.0, 11_585.2, is_certain=False, seconds=1),
        ThrottlePair(107.6, 107.6, is_certain=True, seconds=2),
    )


def test_throttles_of_a_user_rise_from_the_shortest_to_the_longest(tmp_path: Path) -> None:
    own = [request(number, observed_throttle_ms=number) for number in range(1, 101)]
    others = [
        request(200, user="bob", observed_throttle_ms=12_372),
        request(201, user="carol", observed_throttle_ms=0),
        request(202, user="dave", observed_throttle_ms=9, time_ms=0),
    ]
    bob, alice = gathered(tmp_path, requests=[*own, *others]).throttle_spreads
    assert (bob.user, bob.requests, bob.delay_ms) == ("bob", 1, 12_372)
    assert set(bob.percentiles_ms) == {12_372}
    # 1 + 2 + ... + 100
    assert (alice.user, alice.requests, alice.delay_ms) == ("alice", 100, 5_050)
    assert [alice.percentiles_ms[percent] for percent in (0, 50, 95, 100)] == [1, 50, 95, 100]


def test_a_tenant_sees_no_throttle_of_others(tmp_path: Path) -> None:
    rows = [request(1, observed_throttle_ms=7), request(2, user="bob", observed_throttle_ms=9)]
    decisions = [throttled(1, 7)]
    (own,) = gathered(tmp_path, requests=rows, decisions=decisions, tenant="alice").throttle_spreads
    assert (own.user, own.delay_ms) == ("alice", 7)
